// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/kfac_options.h"

#include <cmath>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac {
namespace {

// Between a digest and damping, kl_clip and both intervals as they are now.
constexpr const char* kChanged = " changed_to=";

template <class Value>
void require(bool holds, const char* field, const Value& value, const char* range) {
  if (!holds) throw ConfigError(fmt::format("kfac: {}={}; pass {}", field, value, range));
}

}  // namespace

ExampleCounter number_of_examples(std::int64_t number) {
  require(number >= 1, "examples", number, "a number of at least 1");
  return [number](const at::Tensor&, std::int64_t) { return number; };
}

ExampleCounter tokens_as_examples() {
  return [](const at::Tensor&, std::int64_t rows) { return rows; };
}

void validate(const KfacOptions& options) {
  require(std::isfinite(options.damping) && options.damping >= 0, "damping", options.damping,
          "a finite number of at least 0, such as 0.01");
  require(options.running_average >= 0 && options.running_average < 1, "running_average",
          options.running_average, "a number from 0 to below 1, such as 0.95");
  require(std::isfinite(options.kl_clip) && options.kl_clip >= 0, "kl_clip", options.kl_clip,
          "a finite number of at least 0 (0: off), such as 0.001");
  require(options.graft == Graft::kNone || options.solver != Solver::kAdam, "graft",
          graft_names()[static_cast<std::size_t>(options.graft)],
          "none: solver=adam sets the length of updates itself");
  require(options.kl_clip == 0 || options.solver != Solver::kAdam, "kl_clip", options.kl_clip,
          "0: solver=adam sets the length of updates");
  if (options.graft != Graft::kNone) {
    require(options.kl_clip == 0, "kl_clip", options.kl_clip,
            "0, or graft=none: grafting sets the length of updates");
  }
  if (options.graft != Graft::kNone || keeps_moments(options.solver)) {
    const auto [beta1, beta2, epsilon] = options.graft_adam;
    require(beta1 >= 0 && beta1 < 1, "graft_beta1", beta1, "a number from 0 to below 1");
    require(beta2 >= 0 && beta2 < 1, "graft_beta2", beta2, "a number from 0 to below 1");
    require(std::isfinite(epsilon) && epsilon > 0, "graft_epsilon", epsilon, "a number above 0");
  }
  require(
      !options.lm_damping || (!options.sets_length() && options.damping > 0), "lm_damping",
      options.lm_damping,
      "false, or graft=none, another solver than adam, and a damping above 0: updates of a given "
      "length cannot be judged");
  if (options.learning_rate) {
    require(std::isfinite(*options.learning_rate) && *options.learning_rate >= 0, "learning_rate",
            *options.learning_rate, "a finite number of at least 0");
  }
  require(options.factor_interval >= 1, "factor_interval", options.factor_interval,
          "at least 1 step");
  require(options.inverse_interval >= 1, "inverse_interval", options.inverse_interval,
          "at least 1 step");
  require(std::isfinite(options.refresh_change) && options.refresh_change >= 0, "refresh_change",
          options.refresh_change, "a finite number of at least 0, such as 0.1");
  if (options.spread_refreshes) {
    require(
        options.interval != Refresh::kAdaptive, "spread_refreshes", true,
        "false, or interval=auto or fixed: with adaptive intervals each layer has its own steps");
    require(options.inverse_interval % options.factor_interval == 0, "inverse_interval",
            options.inverse_interval,
            fmt::format("a multiple of factor_interval={}: spread_refreshes=true divides a refresh "
                        "among steps that renew factors",
                        options.factor_interval)
                .c_str());
  }
  require(options.factor_rows >= 0, "factor_rows", options.factor_rows,
          "a number of rows above 0, or 0 for all");
  require(options.max_dimension >= 1, "max_dimension", options.max_dimension,
          "at least 1 row, such as 8192");
  if (options.memory_limit) {
    require(options.memory_limit->value() >= 1, "memory_limit", options.memory_limit->value(),
            "a number of bytes of at least 1");
  }
  require(options.patch_memory >= kMebibyte, "patch_memory", options.patch_memory.value(),
          "at least 1 MiB, in bytes");
}

KfacOptions with_changes(KfacOptions options, const KfacChanges& changes) {
  options.damping = changes.damping.value_or(options.damping);
  options.kl_clip = changes.kl_clip.value_or(options.kl_clip);
  options.factor_interval = changes.factor_interval.value_or(options.factor_interval);
  options.inverse_interval = changes.inverse_interval.value_or(options.inverse_interval);
  return options;
}

std::string digest(const KfacOptions& options) {
  const auto name = [](const std::vector<std::string>& names, auto value) {
    return names[static_cast<std::size_t>(value)];
  };
  const auto [beta1, beta2, epsilon] = options.graft_adam;
  std::string text = fmt::format(
      "damping={} lm_damping={} damping_mode={} running_average={} identity_start={} convention={} "
      "loss_reduction={} kl_clip={} graft={} graft_beta1={} graft_beta2={} graft_epsilon={} "
      "interval={} factor_interval={} inverse_interval={} refresh_change={} factor_rows={} "
      "max_dimension={} large_factors={}",
      options.damping, options.lm_damping, name(damping_names(), options.damping_mode),
      options.running_average, options.identity_start, name(convention_names(), options.convention),
      name(loss_reduction_names(), options.loss_reduction), options.kl_clip,
      name(graft_names(), options.graft), beta1, beta2, epsilon,
      name(refresh_names(), options.interval), options.factor_interval, options.inverse_interval,
      options.refresh_change, options.factor_rows, options.max_dimension,
      name(large_factors_names(), options.large_factors));
  // Only where they are set, so that older states can be loaded.
  if (options.spread_refreshes) text += " spread_refreshes=true";
  if (keeps_basis(options.solver)) text += " solver=" + name(solver_names(), options.solver);
  return text;
}

std::string digest_with_changes(const KfacOptions& first, const KfacOptions& now) {
  const std::string text = digest(first);
  if (text == digest(now)) return text;
  return fmt::format("{}{}{} {} {} {}", text, kChanged, now.damping, now.kl_clip,
                     now.factor_interval, now.inverse_interval);
}

KfacOptions options_of_digest(const KfacOptions& first, const std::string& text) {
  const std::size_t end = text.find(kChanged);
  if (text.substr(0, end) != digest(first)) {
    throw ConfigError(fmt::format(
        "kfac state: made with other options (state: {}; here: {}); use the same options", text,
        digest(first)));
  }
  if (end == std::string::npos) return first;
  std::istringstream values(text.substr(end + std::string_view(kChanged).size()));
  KfacOptions now = first;
  std::string rest;
  if (!(values >> now.damping >> now.kl_clip >> now.factor_interval >> now.inverse_interval) ||
      (values >> rest)) {
    throw ConfigError(fmt::format(
        "kfac state: its options cannot be read ({}); load a state of this model", text));
  }
  validate(now);
  return now;
}

}  // namespace spdkfac
