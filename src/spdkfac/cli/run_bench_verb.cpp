// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "spdkfac/base/data_files.h"
#include "spdkfac/base/error.h"
#include "spdkfac/bench/run_bench.h"
#include "spdkfac/cli/bench_output.h"
#include "spdkfac/cli/flags.h"
#include "spdkfac/cli/on_ranks.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/models/model.h"
#include "spdkfac/train/ranks.h"
#include "spdkfac/train/train_planner.h"

namespace spdkfac::cli {
namespace {

constexpr int kLargestWorld = 1024;

struct RunBenchFlags {
  CLI::App* verb = nullptr;
  bench::Experiment experiment;
  std::vector<std::string> models;
  bench::BenchSetting setting;
  std::optional<std::string> input;
  std::optional<std::int64_t> batch;
  std::vector<std::string> algorithms;
  train::RankOptions ranks;
  bool simulate = false;
  int emulate = 0;
  std::vector<int> worlds;
  std::string trace;
  bool traces = false;
  RecordFlags record;

  bool given(const std::string& flag) const { return verb->get_option(flag)->count() > 0; }
};

bench::BenchSetting setting_of(const RunBenchFlags& flags, const std::string& model) {
  bench::BenchSetting setting = flags.setting;
  const models::ModelInfo& info = models::model_info(model);
  setting.model = model;
  setting.input = flags.input ? parse_shape("--input", *flags.input) : info.input;
  setting.batch = flags.batch.value_or(info.batch);
  return setting;
}

// A model of the data as it is there, unless its width, input or batch is another.
ModelSpec simulated_model(const RunBenchFlags& flags, const std::string& model) {
  const bool changed = flags.given("--width") || flags.input || flags.batch;
  if (!changed) return read_model(data_file("models", model, ", or give --width 1 to build it"));
  return bench::describe_setting(setting_of(flags, model));
}

std::vector<int> simulated_worlds(const RunBenchFlags& flags, const CostModel& costs) {
  if (!flags.worlds.empty()) return flags.worlds;
  if (flags.experiment.table != report::RunTable::kScaling) return {costs.world};
  std::vector<int> worlds;
  for (int world = 1; world <= kLargestWorld; world *= 2) worlds.push_back(world);
  return worlds;
}

bench::RunBenchResult simulated(const RunBenchFlags& flags) {
  for (const char* flag : {"--device", "--threads", "--steps", "--recalibrate", "--profile-steps",
                           "--backend", "--emulate"}) {
    if (!flags.given(flag)) continue;
    throw ConfigError(
        fmt::format("flags: {} and --simulate cannot be combined; remove one of them", flag));
  }
  const CostModel costs = train::simulated_cluster(flags.ranks);
  std::vector<ModelSpec> models;
  for (const std::string& model : flags.models.empty() ? data_names("models") : flags.models) {
    models.push_back(simulated_model(flags, model));
  }
  return bench::simulate_runs(flags.experiment, models, costs, simulated_worlds(flags, costs),
                              flags.traces || !flags.trace.empty());
}

bench::RunBenchResult measured(const RunBenchFlags& flags) {
  if (!flags.worlds.empty()) {
    throw ConfigError(
        "flags: --world needs --simulate; without it, mpirun decides the number of ranks");
  }
  bench::MeasuredBenchOptions options;
  options.ranks = flags.ranks;
  options.emulated_world = flags.emulate;
  for (const std::string& model :
       flags.models.empty() ? std::vector<std::string>{"resnet50"} : flags.models) {
    options.settings.push_back(setting_of(flags, model));
  }
  ProgressBar bar;
  options.progress = bar.listener();
  return bench::measure_runs(flags.experiment, options);
}

// The iteration of the last run as it was measured, else as forecast.
void write_trace(const std::string& file, const bench::RunBenchResult& result) {
  std::ostringstream text;
  result.runs.back().best().trace.write_perfetto(text);
  write_file_atomically(file, text.str());
}

void run_bench(RunBenchFlags flags) {
  if (!flags.algorithms.empty()) {
    flags.experiment.variants.clear();
    for (const std::string& algorithm : flags.algorithms) {
      flags.experiment.variants.push_back(bench::variant_of(algorithm));
    }
  }
  const bool memory = flags.experiment.memory;
  if (memory && flags.simulate) {
    throw ConfigError("flags: bench memory measures real ranks; remove --simulate");
  }
  const bench::RunBenchResult result = flags.simulate ? simulated(flags) : measured(flags);
  if (!result.first_rank) return;
  if (!flags.trace.empty()) write_trace(flags.trace, result);
  // Events by the thousand would each take eight lines.
  const int indent = flags.traces ? -1 : 1;
  write_record(memory ? bench::memory_record(result) : to_json(result, flags.traces),
               memory ? bench::memory_text(result) : to_text(result), flags.record, indent);
}

}  // namespace

void add_run_bench(CLI::App& app, const bench::Experiment& experiment) {
  CLI::App* verb = app.add_subcommand(experiment.name, experiment.help);
  const auto flags = std::make_shared<RunBenchFlags>();
  flags->verb = verb;
  flags->experiment = experiment;
  bench::BenchSetting& setting = flags->setting;
  train::RankOptions& ranks = flags->ranks;
  verb->add_option("--model", flags->models,
                   "Model; repeatable (default: resnet50, with --simulate all bundled models)")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  verb->add_option("--width", setting.width, "Factor for the channels of hidden layers")
      ->type_name("X");
  verb->add_option("--input", flags->input, "Channels x height x width (default: the model's)")
      ->type_name("CxHxW");
  verb->add_option("--batch", flags->batch, "Examples per step and rank (default: the model's)")
      ->type_name("N")
      ->check(count(1, 1'000'000));
  verb->add_option("--algorithm", flags->algorithms,
                   "Algorithm instead of the experiment's; repeatable")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  verb->add_option("--device", setting.device, "cpu (default) or cuda")
      ->type_name("NAME")
      ->check(one_of({"cpu", "cuda"}));
  verb->add_option("--threads", setting.threads, "CPU threads (default: torch's)")
      ->type_name("N")
      ->check(count(1, 4096));
  verb->add_option("--steps", setting.steps, "Measured steps per algorithm (default 20)")
      ->type_name("N")
      ->check(count(1, 100'000));
  verb->add_flag("--simulate", flags->simulate, "Simulate a cluster instead of measuring ranks");
  verb->add_option("--emulate", flags->emulate,
                   "Emulate one of so many ranks on the network of the cluster, in one process")
      ->type_name("N")
      ->check(count(2, kMaxWorld));
  auto* cluster =
      verb->add_option("--cluster", ranks.cluster,
                       "Bundled cluster (with --simulate or --emulate default: paper-64x2080ti)")
          ->type_name("NAME");
  verb->add_option("--cluster-file", ranks.cluster_file,
                   "Cluster file of 'spdkfac calibrate' instead")
      ->type_name("FILE")
      ->excludes(cluster);
  verb->add_option("--world", flags->worlds, "Number of ranks, with --simulate; repeatable")
      ->type_name("P")
      ->expected(1)
      ->take_all()
      ->check(count(1, kMaxWorld));
  verb->add_flag("--recalibrate", ranks.recalibrate,
                 "Measure the costs again if no cluster is given");
  verb->add_option("--profile-steps", ranks.profile_steps,
                   "Timed steps before the plan is made again")
      ->type_name("N")
      ->check(count(0, 1000));
  verb->add_option("--backend", ranks.backend, "mpi (default) or nccl")
      ->type_name("NAME")
      ->check(one_of({"mpi", "nccl"}));
  verb->add_option("--trace", flags->trace,
                   "Write a trace of the last algorithm's last step, for ui.perfetto.dev")
      ->type_name("FILE");
  verb->add_flag("--record-events", flags->traces,
                 "Put the events of one step per algorithm into the record");
  flags->record.add_to(*verb);
  verb->callback([flags] { run_on_ranks([&] { run_bench(*flags); }); });
}

}  // namespace spdkfac::cli
