// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/kfac_options.h"

#include <cmath>

#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac {
namespace {

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
  if (options.graft != Graft::kNone) {
    require(options.kl_clip == 0, "kl_clip", options.kl_clip,
            "0, or graft=none: grafting sets the length of updates");
    const auto [beta1, beta2, epsilon] = options.graft_adam;
    require(beta1 >= 0 && beta1 < 1, "graft_beta1", beta1, "a number from 0 to below 1");
    require(beta2 >= 0 && beta2 < 1, "graft_beta2", beta2, "a number from 0 to below 1");
    require(std::isfinite(epsilon) && epsilon > 0, "graft_epsilon", epsilon, "a number above 0");
  }
  if (options.learning_rate) {
    require(std::isfinite(*options.learning_rate) && *options.learning_rate >= 0, "learning_rate",
            *options.learning_rate, "a finite number of at least 0");
  }
  require(options.factor_interval >= 1, "factor_interval", options.factor_interval,
          "at least 1 step");
  require(options.inverse_interval >= 1, "inverse_interval", options.inverse_interval,
          "at least 1 step");
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

std::string digest(const KfacOptions& options) {
  const auto name = [](const std::vector<std::string>& names, auto value) {
    return names[static_cast<std::size_t>(value)];
  };
  const auto [beta1, beta2, epsilon] = options.graft_adam;
  return fmt::format(
      "damping={} damping_mode={} running_average={} identity_start={} convention={} "
      "loss_reduction={} kl_clip={} graft={} graft_beta1={} graft_beta2={} graft_epsilon={} "
      "factor_interval={} inverse_interval={} growing_intervals={} factor_rows={} "
      "max_dimension={} large_factors={}",
      options.damping, name(damping_names(), options.damping_mode), options.running_average,
      options.identity_start, name(convention_names(), options.convention),
      name(loss_reduction_names(), options.loss_reduction), options.kl_clip,
      name(graft_names(), options.graft), beta1, beta2, epsilon, options.factor_interval,
      options.inverse_interval, options.growing_intervals, options.factor_rows,
      options.max_dimension, name(large_factors_names(), options.large_factors));
}

}  // namespace spdkfac
