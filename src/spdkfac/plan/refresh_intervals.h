// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace spdkfac {

constexpr std::int64_t kMaxInterval = 1'000'000;

// How often factors and inverses are renewed, in steps. Everything that plans for a whole refresh
// cycle takes this value; in training it comes from KfacOptions.
struct RefreshIntervals {
  std::int64_t factors = 1;
  std::int64_t inverses = 1;  // a multiple of `factors`: inverses are made from fresh factors
  bool operator==(const RefreshIntervals&) const = default;
};

// What makes no sense about the intervals, and what to do; nothing otherwise.
std::optional<std::string> conflict_in(const RefreshIntervals& intervals);
// Throws a ConfigError that says so.
void validate(const RefreshIntervals& intervals);

}  // namespace spdkfac
