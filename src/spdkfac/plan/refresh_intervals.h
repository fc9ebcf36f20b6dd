// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spdkfac {

constexpr std::int64_t kMaxInterval = 1'000'000;

// How often factors and inverses are renewed, in steps. Everything that plans for a whole refresh
// cycle takes this value; in training it comes from KfacOptions.
struct RefreshIntervals {
  std::int64_t factors = 1;
  std::int64_t inverses = 1;  // a multiple of `factors`: inverses are made from fresh factors
  // Above 0: these are the most of growing intervals, averaged over so many steps from the first.
  std::int64_t growing_over = 0;
  // A refresh of the inverses is spread over the steps of its interval that renew factors.
  bool spread = false;
  bool operator==(const RefreshIntervals&) const = default;
};

// When they are renewed: after as many steps; often early and rarely later (RefreshSchedule); or,
// of inverses, layer by layer when the factors have moved, with factors often early and rarely
// later.
enum class Refresh { kFixed, kGrowing, kAdaptive };
const std::vector<std::string>& refresh_names();  // fixed, auto, adaptive

// Of growing and adaptive intervals unless said, and the steps that a forecast averages them over.
constexpr RefreshIntervals kMostOfGrowing{10, 100};
constexpr std::int64_t kForecastSteps = 1000;

// What makes no sense about the intervals, and what to do; nothing otherwise.
std::optional<std::string> conflict_in(const RefreshIntervals& intervals);
// Throws a ConfigError that says so.
void validate(const RefreshIntervals& intervals);

}  // namespace spdkfac
