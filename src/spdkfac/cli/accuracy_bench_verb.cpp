// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "spdkfac/bench/accuracy_bench.h"
#include "spdkfac/cli/bench_output.h"
#include "spdkfac/cli/verbs.h"

namespace spdkfac::cli {
namespace {

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

void add_accuracy_bench(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("accuracy", "Rounding error of preconditioned gradients, by precision");
  const auto flags = std::make_shared<AccuracyFlags>();
  bench::AccuracyOptions& options = flags->options;
  const auto count = CLI::Range(std::int64_t{1}, std::int64_t{1'000'000});
  verb->add_option("--model", options.model, "A model for 28x28 grey images; default resnet20");
  verb->add_option("--data-dir", options.data_dir, "Folder of Fashion-MNIST");
  verb->add_option("--device", options.device, "cpu (default) or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  verb->add_option("--batch", options.batch, "Examples per step (default 128)")->check(count);
  verb->add_option("--steps", options.steps, "Steps of training before; default 200")->check(count);
  verb->add_option("--lr", options.learning_rate, "Learning rate; default 0.003")
      ->check(CLI::Range(1e-12, 1e6));
  flags->record.add_to(*verb);
  verb->callback([flags] { run_accuracy_bench(*flags); });
}

}  // namespace spdkfac::cli
