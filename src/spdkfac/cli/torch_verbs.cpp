// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/experiments.h"
#include "spdkfac/cli/verbs.h"

namespace spdkfac::cli {

void add_bench_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("bench", kBenchHelp);
  verb->require_subcommand(1);
  add_models_bench(*verb);
  add_fit_benches(*verb);
  for (const bench::Experiment& experiment : bench::experiments()) add_run_bench(*verb, experiment);
  add_step_bench(*verb);
  add_accuracy_bench(*verb);
}

void add_torch_verbs(CLI::App& app) {
  add_calibrate_verb(app);
  add_describe_verb(app);
  add_train_verb(app);
  add_bench_verb(app);
  for (const char* name : {"calibrate", "describe", "train", "bench"}) {
    app.get_subcommand(name)->group(kTorchGroup);
  }
}

bool forward_torch_verb(const std::vector<std::string>&) { return false; }

}  // namespace spdkfac::cli
