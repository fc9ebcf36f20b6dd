// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/cli/flags.h"
#include "spdkfac/cli/kfac_flags.h"
#include "spdkfac/cli/on_ranks.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/train_output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/models/model.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/train/ranks.h"
#include "spdkfac/train/trainer.h"

namespace spdkfac::cli {
namespace {

constexpr std::int64_t kMaxSteps = 1'000'000'000;
constexpr std::int64_t kDefaultEpochs = 3;
constexpr double kKfacRate = 0.003;
constexpr double kSgdRate = 0.05;
constexpr double kAdamRate = 0.001;
constexpr std::int64_t kMaxSyntheticExamples = 100'000'000;  // their order fits into memory

const std::vector<std::string> kKfacFlags = {"--preset",
                                             "--solver",
                                             "--graft",
                                             "--damping",
                                             "--lm-damping",
                                             "--damping-mode",
                                             "--running-average",
                                             "--identity-start",
                                             "--convention",
                                             "--kl-clip",
                                             "--interval",
                                             "--refresh-change",
                                             "--factor-interval",
                                             "--inverse-interval",
                                             "--norms",
                                             "--precision",
                                             "--patch-memory",
                                             "--max-dimension",
                                             "--large-factors",
                                             "--spread-refreshes",
                                             "--others",
                                             "--others-lr",
                                             "--trace"};
const std::vector<std::string> kSyntheticFlags = {"--synthetic-examples", "--input", "--classes"};

[[noreturn]] void fail_conflict(const std::string& first, const std::string& second) {
  throw ConfigError(conflict_text(first, second));
}

struct TrainVerb {
  train::TrainOptions options;
  std::optional<std::string> input;
  std::optional<std::int64_t> batch;
  std::optional<double> learning_rate;
  std::string optimizer = "sgd";
  std::string schedule = "constant";
  std::optional<std::string> others;
  std::optional<double> others_rate;
  KfacFlags kfac;
  PlanFlags plan_flags;
  CLI::App* verb = nullptr;

  bool given(const std::string& flag) const { return verb->count(flag) > 0; }
  void forbid(const std::vector<std::string>& flags, const std::string& beside) const {
    for (const std::string& flag : flags) {
      if (given(flag)) fail_conflict(beside, flag);
    }
  }

  void add_flags();
  void check_flags() const;
  train::TrainOptions resolve() const;
  train::TrainResult train_with_clear_errors() const;
  void run() const;
};

void TrainVerb::add_flags() {
  std::string group = "Model and data";
  const auto option = [&](const char* flag, auto& field, const std::string& help,
                          const char* type) {
    return verb->add_option(flag, field, help)->type_name(type)->group(group);
  };
  std::vector<std::string> names;
  for (const models::ModelInfo& info : models::model_infos()) names.push_back(info.name);
  option("--model", options.model, fmt::format("{} (default cnn28)", fmt::join(names, ", ")),
         "NAME");
  option("--width", options.width, "Factor for the channels of hidden layers", "X")
      ->check(number(0.001, 16));
  option("--data", options.data, "fashion-mnist (default), cifar10 or synthetic", "NAME")
      ->check(one_of({"fashion-mnist", "cifar10", "synthetic"}));
  option("--data-dir", options.data_dir, "Folder of the data set's files", "DIR");
  option("--synthetic-examples", options.synthetic_examples,
         "Synthetic training examples, with a fifth as many for tests (default 5120)", "N")
      ->check(count(1, kMaxSyntheticExamples));
  option("--input", input, "For synthetic images (default: the model's)", "CxHxW");
  option("--classes", options.classes, "For synthetic images (default: the model's)", "N")
      ->check(count(1, 1'000'000));
  verb->add_flag("--augment", options.augment, "Shift and mirror training images at random")
      ->group(group);

  group = "Training";
  option("--algorithm", options.algorithm,
         "kfac (default), sgd, auto or a name from 'spdkfac algorithms'", "NAME");
  option("--optimizer", optimizer, "Optimizer, with or without K-FAC: sgd (default), adam, adamw",
         "NAME")
      ->check(one_of(train::optimizer_names()));
  option("--batch", batch, "Examples per step and rank (default: the model's)", "N")
      ->check(count(1, 1'000'000));
  option("--epochs", options.epochs,
         "Passes through the data (default 3, or as many as --max-steps needs)", "N")
      ->check(count(1, 1'000'000));
  option("--max-steps", options.max_steps, "Stop after so many steps", "N")
      ->check(count(1, kMaxSteps));
  option("--lr", learning_rate,
         "Learning rate (default 0.003 for kfac, 0.05 for sgd, 0.001 for adam and adamw)", "RATE")
      ->check(number(1e-12, 1e6));
  option("--momentum", options.momentum, "Momentum of sgd (default 0.9)", "X")
      ->check(number(0, 0.99999));
  option("--weight-decay", options.weight_decay, "Decoupled with adamw (default 0)", "X")
      ->check(number(0, 1e3));
  option("--others", others,
         "Optimizer of the parameters outside K-FAC's layers: sgd, adam, adamw (default: "
         "--optimizer)",
         "NAME")
      ->check(one_of(train::optimizer_names()));
  option("--others-lr", others_rate,
         "Its learning rate (default 0.05 for sgd, 0.001 for adam and adamw)", "RATE")
      ->check(number(1e-12, 1e6))
      ->needs("--others");
  option("--schedule", schedule, "Learning-rate schedule: constant (default), cosine, step", "WORD")
      ->check(one_of(train::schedule_names()));
  option("--warmup-steps", options.warmup_steps, "Steps in which the learning rate rises from 0",
         "N")
      ->check(count(0, kMaxSteps));
  option("--seed", options.seed, "Random seed (default 1)", "N")
      ->check(count(0, std::numeric_limits<std::int64_t>::max()));
  option("--device", options.device, "cpu (default) or cuda", "NAME")
      ->check(one_of({"cpu", "cuda"}));
  verb->add_flag_callback(
          "--no-graphs", [this] { options.graphs = false; },
          "On a GPU, do not record steps as CUDA graphs")
      ->group(group);
  option("--threads", options.threads, "CPU threads (default: torch's)", "N")
      ->check(count(1, 4096));

  kfac.add_to(*verb, "K-FAC");

  group = "Ranks (under mpirun; each variant overrides one option of the algorithm)";
  option("--cluster", options.ranks.cluster, "Costs to plan for: a bundled cluster", "NAME");
  option("--cluster-file", options.ranks.cluster_file,
         "Costs to plan for: a file of 'spdkfac calibrate'", "FILE")
      ->excludes("--cluster");
  verb->add_flag("--recalibrate", options.ranks.recalibrate,
                 "Measure the costs again if no cluster is given")
      ->group(group)
      ->excludes("--cluster")
      ->excludes("--cluster-file");
  option("--plan", options.ranks.plan_file, "Follow this plan file", "FILE")
      ->excludes("--cluster")
      ->excludes("--cluster-file")
      ->excludes("--recalibrate");
  option("--plan-out", options.ranks.plan_out, "Write the plan that the run followed", "FILE");
  option("--profile-steps", options.ranks.profile_steps,
         "Timed steps before the plan is made again, 0 for never (default 5)", "N")
      ->check(count(0, kMaxSteps));
  option("--backend", options.ranks.backend, "mpi (default) or nccl (one GPU per rank)", "NAME")
      ->check(one_of({"mpi", "nccl"}));
  option("--timeout", options.ranks.timeout_seconds,
         "Seconds to wait for a rank that does not answer (default 60)", "S")
      ->check(count(1, 86'400));
  plan_flags.add_to(*verb, group);

  group = "Output";
  option("--eval-every", options.eval_every, "Also test every so many steps", "STEPS")
      ->check(count(1, kMaxSteps));
  option("--target-accuracy", options.target_accuracy, "Stop when a test reaches this accuracy",
         "SHARE")
      ->check(number(1e-6, 1));
  option("--metrics", options.metrics, "Append one JSON line per epoch and test", "FILE");
  option("--trace", options.trace, "Write a trace of the last step, for ui.perfetto.dev", "FILE");
  verb->add_flag("--json", options.json, "Print a summary as JSON; other output goes to stderr")
      ->group(group);
  option("--out", options.out, "Also write the summary as JSON", "FILE");

  group = "Checkpoints";
  option("--checkpoint-dir", options.checkpoint_dir, "Folder for the checkpoints of this run",
         "DIR");
  option("--checkpoint-every", options.checkpoint_every,
         "Steps between checkpoints (default: after each epoch)", "STEPS")
      ->check(count(1, kMaxSteps));
  option("--keep", options.keep, "Number of checkpoints to keep (default 3)", "N")
      ->check(count(1, 1'000'000));
  verb->add_flag("--resume", options.resume, "Continue from the newest checkpoint")->group(group);
}

void TrainVerb::check_flags() const {
  if (options.algorithm == "sgd") forbid(kKfacFlags, "--algorithm sgd");
  if (optimizer != "sgd" && others.value_or("") != "sgd") {
    forbid({"--momentum"}, "--optimizer " + optimizer);
  }
  if (options.data == "synthetic") {
    forbid({"--data-dir"}, "--data synthetic");
  } else {
    forbid(kSyntheticFlags, "--data " + options.data);
  }
  if (options.device == "cpu") forbid({"--no-graphs"}, "--device cpu");
  if (options.data == "cifar10" && options.data_dir.empty()) {
    throw ConfigError(
        "flags: --data cifar10 needs --data-dir, a folder with the files of "
        "cifar-10-binary.tar.gz");
  }
  if (options.checkpoint_dir.empty()) {
    for (const char* flag : {"--checkpoint-every", "--keep", "--resume"}) {
      if (given(flag)) {
        throw ConfigError(fmt::format("flags: {} needs --checkpoint-dir; name the folder", flag));
      }
    }
  }
}

train::TrainOptions TrainVerb::resolve() const {
  check_flags();
  const models::ModelInfo& model = models::model_info(options.model);
  train::TrainOptions result = options;
  const std::vector<std::int64_t> shape = input ? parse_shape("--input", *input) : model.input;
  result.input = {shape.at(0), shape.at(1), shape.at(2)};
  if (result.classes == 0) result.classes = model.classes;
  result.batch = batch.value_or(model.batch);
  if (result.epochs == 0 && result.max_steps == 0) result.epochs = kDefaultEpochs;
  const auto choose = [](const std::vector<std::string>& names, const std::string& name,
                         auto& field) {
    field = static_cast<std::decay_t<decltype(field)>>(std::find(names.begin(), names.end(), name) -
                                                       names.begin());
  };
  choose(train::optimizer_names(), optimizer, result.optimizer);
  choose(train::schedule_names(), schedule, result.schedule);
  if (others) choose(train::optimizer_names(), *others, result.others.emplace());
  result.kfac = kfac.options(result.optimizer != train::BaseOptimizer::kSgd);
  // Grafted updates have the length of the optimizer's own.
  const bool own_rate = result.second_order() && !result.kfac.sets_length();
  const auto default_rate = [](train::BaseOptimizer of, double sgd) {
    return of == train::BaseOptimizer::kSgd ? sgd : kAdamRate;
  };
  result.learning_rate =
      learning_rate.value_or(default_rate(result.optimizer, own_rate ? kKfacRate : kSgdRate));
  if (others) result.others_rate = others_rate.value_or(default_rate(*result.others, kSgdRate));
  result.kfac.trace = !result.trace.empty();
  if (result.second_order()) validate(result.kfac);
  result.ranks.plan = plan_flags.options(result.algorithm);
  if (result.algorithm != kAutoAlgorithm) validate(result.ranks.plan);
  require_trainable(result.ranks.plan);
  return result;
}

train::TrainResult TrainVerb::train_with_clear_errors() const {
  try {
    TrainOutput output(options.json);
    return train::train(resolve(), output);
  } catch (const c10::OutOfMemoryError& error) {
    throw Error(fmt::format(
        "train: the device is out of memory ({}); lower --batch, --width or --patch-memory",
        error.what_without_backtrace()));
  }
}

void TrainVerb::run() const {
  train::TrainResult result;
  run_on_ranks([&] { result = train_with_clear_errors(); });
  if (result.first_rank && !options.out.empty()) {
    write_file_atomically(options.out, result.summary.dump(1) + "\n");
  }
  if (options.json && result.first_rank) print_json(result.summary);
  constexpr int kSignalExit = 128;
  if (result.signal != 0) std::exit(kSignalExit + result.signal);
}

}  // namespace

void add_train_verb(CLI::App& app) {
  const auto state = std::make_shared<TrainVerb>();
  state->verb = app.add_subcommand("train", kTrainHelp);
  state->add_flags();
  state->verb->footer("Example: spdkfac train --data fashion-mnist --epochs 3");
  state->verb->callback([state] { state->run(); });
}

}  // namespace spdkfac::cli
