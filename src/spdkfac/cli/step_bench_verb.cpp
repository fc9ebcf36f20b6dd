// SPDX-License-Identifier: Apache-2.0
// The sub-verbs of bench that run in one process: step and accuracy.
#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/bench/accuracy_bench.h"
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

struct AccuracyFlags {
  bench::AccuracyOptions options;
  RecordFlags record;
};

void run_accuracy_bench(const AccuracyFlags& flags) {
  ProgressBar bar;
  const auto result = bench::bench_accuracy(flags.options, bar.listener());
  bar.end();
  write_record(to_json(flags.options, result), to_text(flags.options, result), flags.record);
}

}  // namespace

void add_step_bench(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("step", "One training step with SGD and with K-FAC");
  const auto flags = std::make_shared<StepBenchFlags>();
  bench::StepBenchOptions& options = flags->options;
  bench::BenchSetting& setting = options.setting;
  const auto limits = count(1, 100'000);
  verb->add_option("--model", setting.model, "Model (default: resnet50)")->type_name("NAME");
  verb->add_option("--width", setting.width, "Factor for the channels of hidden layers")
      ->type_name("X");
  verb->add_option("--input", flags->input, "Channels x height x width (default: the model's)")
      ->type_name("CxHxW");
  verb->add_option("--batch", flags->batch, "Examples per step (default: the model's)")
      ->type_name("N")
      ->check(count(1, 1'000'000));
  verb->add_option("--device", setting.device, "cpu (default) or cuda")
      ->type_name("NAME")
      ->check(one_of({"cpu", "cuda"}));
  verb->add_option("--precision", flags->precision,
                   "Precision on a GPU: fp32 (default), tf32, or bf16 by autocast")
      ->type_name("WORD")
      ->check(one_of(precision_names()));
  verb->add_flag("--channels-last", setting.channels_last, "Use the channels-last memory format");
  verb->add_flag("--graphs", setting.graphs,
                 "Run steps as CUDA graphs on a GPU, except traced ones");
  verb->add_option("--steps-per-sample", options.steps_per_sample,
                   "Consecutive steps per sample (default 1)")
      ->type_name("N")
      ->check(count(1, 1000));
  verb->add_option("--profile", options.profile,
                   "Also write the trace of the last K-FAC step, for ui.perfetto.dev")
      ->type_name("FILE");
  verb->add_option("--threads", setting.threads, "CPU threads (default: torch's)")
      ->type_name("N")
      ->check(count(1, 4096));
  verb->add_option("--steps", setting.steps, "Measured steps per variant (default 20)")
      ->type_name("N")
      ->check(limits);
  verb->add_option("--warmup", options.warmup, "Warm-up steps (default 3)")
      ->type_name("N")
      ->check(limits);
  verb->add_option("--factor-interval", options.kfac.factor_interval, "Default 1")
      ->type_name("N")
      ->check(limits);
  verb->add_option("--inverse-interval", options.kfac.inverse_interval, "Default 1")
      ->type_name("N")
      ->check(limits);
  verb->add_flag("--spread-refreshes", options.kfac.spread_refreshes,
                 "Spread a refresh of the inverses over the steps that renew factors");
  flags->record.add_to(*verb);
  verb->callback([flags] { run_step_bench(*flags); });
}

void add_accuracy_bench(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("accuracy", "Rounding error of preconditioned gradients, by precision");
  const auto flags = std::make_shared<AccuracyFlags>();
  bench::AccuracyOptions& options = flags->options;
  const auto limits = count(1, 1'000'000);
  verb->add_option("--model", options.model, "A model for 28x28 grey images; default resnet20")
      ->type_name("NAME");
  verb->add_option("--data-dir", options.data_dir, "Folder of Fashion-MNIST")->type_name("DIR");
  verb->add_option("--device", options.device, "cpu (default) or cuda")
      ->type_name("NAME")
      ->check(one_of({"cpu", "cuda"}));
  verb->add_option("--batch", options.batch, "Examples per step (default 128)")
      ->type_name("N")
      ->check(limits);
  verb->add_option("--steps", options.steps, "Steps of training before; default 200")
      ->type_name("N")
      ->check(limits);
  verb->add_option("--lr", options.learning_rate, "Learning rate; default 0.003")
      ->type_name("RATE")
      ->check(number(1e-12, 1e6));
  flags->record.add_to(*verb);
  verb->callback([flags] { run_accuracy_bench(*flags); });
}

}  // namespace spdkfac::cli
