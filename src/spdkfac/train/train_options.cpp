// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/train_options.h"

#include <fmt/format.h>

namespace spdkfac::train {

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> kNames = {"sgd", "adam"};
  return kNames;
}

Settings settings_of(const TrainOptions& options, int world, std::int64_t total_steps) {
  Settings settings;
  const auto add = [&](const char* flag, const auto& value) {
    settings.emplace_back(flag, fmt::format("{}", value));
  };
  add("--model", options.model);
  add("--width", options.width);
  add("--data", options.data);
  if (options.data == "synthetic") {
    add("--synthetic-examples", options.synthetic_examples);
    add("--input", options.input.text());
    add("--classes", options.classes);
  }
  add("--augment", options.augment);
  add("--algorithm", options.algorithm);
  add("--optimizer", name_of(optimizer_names(), options.optimizer));
  add("--batch", options.batch);
  add("ranks", world);
  add("--lr", options.learning_rate);
  if (options.optimizer == BaseOptimizer::kSgd) add("--momentum", options.momentum);
  add("--weight-decay", options.weight_decay);
  add("--schedule", name_of(schedule_names(), options.schedule));
  add("--warmup-steps", options.warmup_steps);
  if (options.schedule != Schedule::kConstant) add("steps of the run", total_steps);
  add("--seed", options.seed);
  if (!options.second_order()) return settings;
  add("--damping", options.kfac.damping);
  add("--damping-mode", name_of(damping_names(), options.kfac.damping_mode));
  add("--running-average", options.kfac.running_average);
  add("--identity-start", options.kfac.identity_start);
  add("--convention", name_of(convention_names(), options.kfac.convention));
  add("--kl-clip", options.kfac.kl_clip);
  add("--factor-interval", options.kfac.factor_interval);
  add("--inverse-interval", options.kfac.inverse_interval);
  add("--max-dimension", options.kfac.max_dimension);
  add("--large-factors", name_of(large_factors_names(), options.kfac.large_factors));
  return settings;
}

}  // namespace spdkfac::train
