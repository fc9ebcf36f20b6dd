// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/bench/step_bench.h"
#include "spdkfac/cli/bench_output.h"
#include "spdkfac/cli/flags.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/models/model.h"

namespace spdkfac::cli {
namespace {

struct StepBenchFlags {
  bench::StepBenchOptions options;
  std::optional<std::string> input;
  std::optional<std::int64_t> batch;
  std::string precision = "fp32";
  RecordFlags record;
};

void run_step_bench(const StepBenchFlags& flags) {
  bench::StepBenchOptions options = flags.options;
  if (options.setting.graphs && options.setting.device == "cpu") {
    throw ConfigError("bench step: --graphs needs a GPU; add --device cuda, or remove --graphs");
  }
  const models::ModelInfo& info = models::model_info(options.setting.model);
  options.setting.input = flags.input ? parse_shape("--input", *flags.input) : info.input;
  options.setting.batch = flags.batch.value_or(info.batch);
  const auto& names = precision_names();
  options.precision = options.kfac.precision = static_cast<Precision>(
      std::find(names.begin(), names.end(), flags.precision) - names.begin());
  options.setting.autocast = options.precision == Precision::kBf16;
  bench::StepBenchResult result;
  try {
    ProgressBar bar;
    result = bench::bench_step(options, bar.listener());
  } catch (const c10::Error& error) {
    throw Error(fmt::format("torch: {}", error.what_without_backtrace()));
  }
  if (!options.profile.empty()) {
    std::ostringstream text;
    result.last.write_perfetto(text);
    write_file_atomically(options.profile, text.str());
  }
  write_record(to_json(options, result), to_text(options, result), flags.record);
}

}  // namespace

void add_step_bench(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("step", "One training step with SGD and with K-FAC");
  const auto flags = std::make_shared<StepBenchFlags>();
  bench::StepBenchOptions& options = flags->options;
  bench::BenchSetting& setting = options.setting;
  const auto steps = CLI::Range(std::int64_t{1}, std::int64_t{100'000});
  verb->add_option("--model", setting.model, "Model (default: resnet50)");
  verb->add_option("--width", setting.width, "Factor for the channels of hidden layers");
  verb->add_option("--input", flags->input, "Channels x height x width (default: the model's)");
  verb->add_option("--batch", flags->batch, "Examples per step (default: the model's)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  verb->add_option("--device", setting.device, "cpu (default) or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  verb->add_option("--precision", flags->precision,
                   "Precision on a GPU: fp32 (default), tf32, or bf16 by autocast")
      ->check(CLI::IsMember(precision_names()));
  verb->add_flag("--channels-last", setting.channels_last, "Use the channels-last memory format");
  verb->add_flag("--graphs", setting.graphs,
                 "Run steps as CUDA graphs on a GPU, except traced ones");
  verb->add_option("--steps-per-sample", options.steps_per_sample,
                   "Consecutive steps per sample (default 1)")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--profile", options.profile,
                   "Also write the trace of the last K-FAC step, for ui.perfetto.dev");
  verb->add_option("--threads", setting.threads, "CPU threads (default: torch's)")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--steps", setting.steps, "Measured steps per variant (default 20)")
      ->check(steps);
  verb->add_option("--warmup", options.warmup, "Warm-up steps (default 3)")->check(steps);
  verb->add_option("--factor-interval", options.kfac.factor_interval, "Default 1")->check(steps);
  verb->add_option("--inverse-interval", options.kfac.inverse_interval, "Default 1")->check(steps);
  flags->record.add_to(*verb);
  verb->callback([flags] { run_step_bench(*flags); });
}

}  // namespace spdkfac::cli
