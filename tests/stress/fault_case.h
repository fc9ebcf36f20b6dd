// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stress/plan_case.h"
#include "stress/plan_run.h"

namespace spdkfac::stress {

// What one rank does at one moment. kPause is shorter than the timeout; kStall lasts until another
// rank has failed, or all others have ended.
enum class Fault { kThrow, kLeave, kStall, kPause };

struct FaultCase {
  PlanCase plan;
  Fault fault = Fault::kThrow;
  int rank = 0;
  std::int64_t step = 0;
  Moment moment = Moment::kBegin;
};

struct FaultTotals {
  std::int64_t failed = 0;   // with the first error, and the failed rank's number on all others
  std::int64_t trained = 0;  // to the end, as without the fault
};

FaultCase random_fault_case(std::uint32_t seed);
std::string text_of(const FaultCase& one);
std::string text_of(const FaultTotals& totals);
// What is wrong with the outcome of a case; nothing if all is well.
std::optional<std::string> check_fault(const FaultCase& one, FaultTotals& totals);

}  // namespace spdkfac::stress
