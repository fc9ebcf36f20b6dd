// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <string>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/cli/iteration_bench.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/ranks.h"
#include "spdkfac/cli/shape.h"
#include "spdkfac/cli/step_bench.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/comm/mpi.h"
#include "spdkfac/models/model.h"

namespace spdkfac::cli {
namespace {

struct StepFlags {
  StepBenchOptions options;
  std::optional<std::string> input;
  std::optional<std::int64_t> batch;
  std::string out;
  bool json = false;
};

void run_step(const StepFlags& flags) {
  StepBenchOptions options = flags.options;
  const ModelInfo& info = model_info(options.model);
  options.input = flags.input ? parse_shape("--input", *flags.input) : info.input;
  options.batch = flags.batch.value_or(info.batch);
  StepBenchResult result;
  try {
    result = bench_step(options);
  } catch (const c10::Error& error) {
    throw Error(fmt::format("torch: {}", error.what_without_backtrace()));
  }
  if (!flags.out.empty()) write_file_atomically(flags.out, to_json(options, result).dump(1) + "\n");
  if (flags.json) {
    print_json(to_json(options, result));
  } else {
    print(to_text(options, result));
  }
}

struct IterationFlags {
  IterationBenchOptions options;
  std::optional<std::string> input;
  std::optional<std::int64_t> batch;
  std::string out;
  bool json = false;
};

void run_iteration(const IterationFlags& flags) {
  IterationBenchOptions options = flags.options;
  const ModelInfo& info = model_info(options.model);
  options.input = flags.input ? parse_shape("--input", *flags.input) : info.input;
  options.batch = flags.batch.value_or(info.batch);
  IterationBenchResult result;
  try {
    result = bench_iteration(options);
  } catch (const std::exception& error) {
    if (launched_by_mpi()) end_all_ranks(error);
    throw;
  }
  if (!result.first_rank) return;
  if (!flags.out.empty()) write_file_atomically(flags.out, to_json(options, result).dump(1) + "\n");
  if (flags.json) {
    print_json(to_json(options, result));
  } else {
    print(to_text(options, result));
  }
}

void add_iteration(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "iteration", "Algorithms on several ranks (under mpirun), and predicted");
  const auto flags = std::make_shared<IterationFlags>();
  IterationBenchOptions& options = flags->options;
  verb->add_option("--model", options.model, "Default resnet50");
  verb->add_option("--width", options.width, "Multiplies the channels of hidden layers");
  verb->add_option("--input", flags->input, "Channels x height x width; default: the model's");
  verb->add_option("--batch", flags->batch, "Examples of a step and rank; default: the model's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  verb->add_option("--algorithm", options.algorithms,
                   "Repeatable; default sgd, d-kfac, mpd-kfac, spd-kfac, auto")
      ->expected(1)
      ->take_all();
  verb->add_option("--device", options.device, "cpu (default) or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  verb->add_option("--threads", options.threads, "Of the CPU; default: torch's choice")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--steps", options.steps, "Measured steps of each algorithm; default 20")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000}));
  verb->add_option("--cluster-file", options.ranks.cluster_file, "Of 'spdkfac calibrate'");
  verb->add_flag("--recalibrate", options.ranks.recalibrate, "Without it: measure the costs anew");
  verb->add_option("--profile-steps", options.ranks.profile_steps, "Before plans are made again")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1000}));
  verb->add_option("--backend", options.ranks.backend, "mpi (default) or nccl")
      ->check(CLI::IsMember({"mpi", "nccl"}));
  verb->add_option("--trace", options.trace, "Write the last step for ui.perfetto.dev");
  verb->add_option("--out", flags->out, "Also write all samples to this file, as JSON");
  verb->add_flag("--json", flags->json, "Print all samples as JSON");
  verb->callback([flags] { run_iteration(*flags); });
}

}  // namespace

void add_bench_verb(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", kBenchHelp);
  bench->require_subcommand(1);
  add_iteration(*bench);
  CLI::App* verb = bench->add_subcommand("step", "One training step: SGD beside K-FAC");
  const auto flags = std::make_shared<StepFlags>();
  StepBenchOptions& options = flags->options;
  const auto steps = CLI::Range(std::int64_t{1}, std::int64_t{100'000});
  verb->add_option("--model", options.model, "Default resnet50");
  verb->add_option("--width", options.width, "Multiplies the channels of hidden layers");
  verb->add_option("--input", flags->input, "Channels x height x width; default: the model's");
  verb->add_option("--batch", flags->batch, "Examples of a step; default: the model's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  verb->add_option("--device", options.device, "cpu (default) or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  verb->add_flag("--tf32", options.tf32, "On a GPU: products and convolutions in tf32");
  verb->add_option("--threads", options.threads, "Of the CPU; default: torch's choice")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--steps", options.steps, "Measured steps of each variant; default 20")
      ->check(steps);
  verb->add_option("--warmup", options.warmup, "Steps before; default 3")->check(steps);
  verb->add_option("--factor-interval", options.kfac.factor_interval, "Default 1")->check(steps);
  verb->add_option("--inverse-interval", options.kfac.inverse_interval, "Default 1")->check(steps);
  verb->add_option("--out", flags->out, "Also write all samples to this file, as JSON");
  verb->add_flag("--json", flags->json, "Print all samples as JSON");
  verb->callback([flags] { run_step(*flags); });
}

}  // namespace spdkfac::cli
