// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include "spdkfac/bench/fit_bench.h"
#include "spdkfac/cli/bench_output.h"
#include "spdkfac/cli/flags.h"
#include "spdkfac/cli/on_ranks.h"
#include "spdkfac/cli/verbs.h"

namespace spdkfac::cli {
namespace {

struct FitBenchFlags {
  bench::FitBenchOptions options;
  bool simulate = false;
  RecordFlags record;
};

void run_fit_bench(const FitBenchFlags& flags) {
  ProgressBar bar;
  const std::optional<report::CostCurves> curves =
      flags.simulate ? bench::simulate_fits(flags.options)
                     : bench::measure_fits(flags.options, bar.listener());
  bar.end();
  if (curves) write_record(to_json(*curves), to_text(*curves), flags.record);
}

void add_fit_bench(CLI::App& app, bool inverse) {
  CLI::App* verb =
      inverse
          ? app.add_subcommand("inverse",
                               "Times of inversions with fits, and compared with broadcasts")
          : app.add_subcommand("comm", "Times of collectives by size, with fits (under mpirun)");
  const auto flags = std::make_shared<FitBenchFlags>();
  bench::FitBenchOptions& options = flags->options;
  options.inverse = inverse;
  if (inverse) {
    verb->add_option("--max-dim", options.max_dim, "Largest dimension to invert (default 2048)")
        ->type_name("N")
        ->check(count(256, 32768));
  } else {
    verb->add_option("--max-elements", options.max_elements,
                     "Largest message in elements (default 4194304)")
        ->type_name("N")
        ->check(count(4096, std::int64_t{1} << 31));
  }
  verb->add_option("--repetitions", options.repetitions, "Samples per measurement (default 10)")
      ->type_name("N")
      ->check(count(1, 10'000));
  verb->add_option("--device", options.device, "cpu (default) or cuda")
      ->type_name("NAME")
      ->check(one_of({"cpu", "cuda"}));
  verb->add_option("--backend", options.ranks.backend, "mpi (default) or nccl")
      ->type_name("NAME")
      ->check(one_of({"mpi", "nccl"}));
  verb->add_option("--threads", options.threads, "CPU threads of a rank (default: torch's)")
      ->type_name("N")
      ->check(count(1, 4096));
  verb->add_flag("--simulate", flags->simulate,
                 "Show the costs of a cluster file instead of measuring");
  auto* cluster = verb->add_option("--cluster", options.ranks.cluster,
                                   "Bundled cluster; with --simulate default paper-64x2080ti")
                      ->type_name("NAME");
  verb->add_option("--cluster-file", options.ranks.cluster_file,
                   "Costs to plan for: a file of 'spdkfac calibrate'")
      ->type_name("FILE")
      ->excludes(cluster);
  flags->record.add_to(*verb);
  verb->callback([flags] { run_on_ranks([&] { run_fit_bench(*flags); }); });
}

}  // namespace

void add_fit_benches(CLI::App& app) {
  add_fit_bench(app, /*inverse=*/false);
  add_fit_bench(app, /*inverse=*/true);
}

}  // namespace spdkfac::cli
