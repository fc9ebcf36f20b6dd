// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stress/plan_case.h"

namespace spdkfac::stress {

struct PlanTotals {
  std::int64_t equal = 0;
  std::int64_t sensitive = 0;  // differ by no more than amplified roundings
  std::int64_t refused = 0;
  double largest = 0;  // relative difference from one rank
  std::uint32_t largest_seed = 0;
};
std::string text_of(const PlanTotals& totals);

// What is wrong with the outcome of a case; nothing if all is well.
std::optional<std::string> check_plan(const PlanCase& one, PlanTotals* totals = nullptr);

}  // namespace spdkfac::stress
