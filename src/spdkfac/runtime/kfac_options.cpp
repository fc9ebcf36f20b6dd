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

void validate(const KfacOptions& options) {
  require(std::isfinite(options.damping) && options.damping >= 0, "damping", options.damping,
          "a finite number of at least 0, such as 0.01");
  require(options.running_average >= 0 && options.running_average < 1, "running_average",
          options.running_average, "a number from 0 to below 1, such as 0.95");
  require(std::isfinite(options.kl_clip) && options.kl_clip >= 0, "kl_clip", options.kl_clip,
          "a finite number of at least 0 (0: off), such as 0.001");
  if (options.learning_rate) {
    require(std::isfinite(*options.learning_rate) && *options.learning_rate >= 0, "learning_rate",
            *options.learning_rate, "a finite number of at least 0");
  }
  require(options.factor_interval >= 1, "factor_interval", options.factor_interval,
          "at least 1 step");
  require(options.inverse_interval >= 1, "inverse_interval", options.inverse_interval,
          "at least 1 step");
  require(options.patch_memory >= kMebibyte, "patch_memory", options.patch_memory.value(),
          "at least 1 MiB, in bytes");
}

std::string digest(const KfacOptions& options) {
  return fmt::format(
      "damping={} damping_mode={} running_average={} identity_start={} convention={} kl_clip={} "
      "factor_interval={} inverse_interval={}",
      options.damping, damping_names()[static_cast<std::size_t>(options.damping_mode)],
      options.running_average, options.identity_start,
      convention_names()[static_cast<std::size_t>(options.convention)], options.kl_clip,
      options.factor_interval, options.inverse_interval);
}

}  // namespace spdkfac
