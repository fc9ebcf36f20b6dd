// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/train_options.h"

#include <fmt/format.h>

namespace spdkfac::train {

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> kNames = {"sgd", "adam", "adamw"};
  return kNames;
}

bool uses_momentum(const TrainOptions& options) {
  return options.optimizer == BaseOptimizer::kSgd || options.others == BaseOptimizer::kSgd;
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
  if (uses_momentum(options)) add("--momentum", options.momentum);
  add("--weight-decay", options.weight_decay);
  add("--schedule", name_of(schedule_names(), options.schedule));
  add("--warmup-steps", options.warmup_steps);
  if (options.schedule != Schedule::kConstant) add("steps of the run", total_steps);
  add("--seed", options.seed);
  if (!options.second_order()) return settings;
  if (options.others) {
    add("--others", name_of(optimizer_names(), *options.others));
    add("--others-lr", options.others_rate);
  }
  add("--solver", name_of(solver_names(), options.kfac.solver));
  add("--damping", options.kfac.damping);
  add("--lm-damping", options.kfac.lm_damping);
  add("--damping-mode", name_of(damping_names(), options.kfac.damping_mode));
  add("--running-average", options.kfac.running_average);
  add("--identity-start", options.kfac.identity_start);
  add("--convention", name_of(convention_names(), options.kfac.convention));
  add("--kl-clip", options.kfac.kl_clip);
  add("--graft", name_of(graft_names(), options.kfac.graft));
  add("--interval", name_of(refresh_names(), options.kfac.interval));
  if (options.kfac.interval == Refresh::kAdaptive) {
    add("--refresh-change", options.kfac.refresh_change);
  }
  add("--factor-interval", options.kfac.factor_interval);
  add("--inverse-interval", options.kfac.inverse_interval);
  if (options.kfac.spread_refreshes) add("--spread-refreshes", true);
  add("--norms", options.kfac.norms);
  add("--max-dimension", options.kfac.max_dimension);
  add("--large-factors", name_of(large_factors_names(), options.kfac.large_factors));
  return settings;
}

}  // namespace spdkfac::train
