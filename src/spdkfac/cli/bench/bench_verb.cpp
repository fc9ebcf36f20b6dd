// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/bench/bench_verbs.h"
#include "spdkfac/cli/verbs.h"

namespace spdkfac::cli {

void add_bench_verb(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", kBenchHelp);
  bench->require_subcommand(1);
  add_models_bench(*bench);
  add_fit_benches(*bench);
  for (const Experiment& experiment : experiments()) add_run_bench(*bench, experiment);
  add_step_bench(*bench);
  add_accuracy_bench(*bench);
}

}  // namespace spdkfac::cli
