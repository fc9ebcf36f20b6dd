// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/refresh_intervals.h"

#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac {

const std::vector<std::string>& refresh_names() {
  static const std::vector<std::string> names = {"fixed", "auto", "adaptive"};
  return names;
}

std::optional<std::string> conflict_in(const RefreshIntervals& intervals) {
  for (const auto& [name, interval] : {std::pair{"factor_interval", intervals.factors},
                                       std::pair{"inverse_interval", intervals.inverses}}) {
    if (interval < 1 || interval > kMaxInterval) {
      return fmt::format("{}={} is out of range; use 1 to {}", name, interval, kMaxInterval);
    }
  }
  if (intervals.growing_over < 0 || intervals.growing_over > kMaxInterval) {
    return fmt::format("growing_over={} is out of range; use 0 to {}", intervals.growing_over,
                       kMaxInterval);
  }
  if (intervals.inverses % intervals.factors != 0) {
    return fmt::format(
        "inverse_interval={} is not a multiple of factor_interval={}; new inverses are made from "
        "new factors, choose a multiple",
        intervals.inverses, intervals.factors);
  }
  return std::nullopt;
}

void validate(const RefreshIntervals& intervals) {
  if (const auto conflict = conflict_in(intervals)) throw ConfigError("options: " + *conflict);
}

}  // namespace spdkfac
