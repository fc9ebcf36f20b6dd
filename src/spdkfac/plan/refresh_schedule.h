// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "spdkfac/plan/refresh_intervals.h"

namespace spdkfac::plan {

// Which steps of a run renew factors and inverses. A function of the step alone, so all ranks agree
// and a run that is resumed goes on alike.
//
// Fixed: every so many steps. Growing: often early, when factors change most, and rarely later: a
// tenth of the steps so far lies between two refreshes, at least 1 and at most the interval.
// Inverses are then renewed in steps that renew factors.
class RefreshSchedule {
 public:
  RefreshSchedule(const RefreshIntervals& intervals, Refresh refresh)
      : intervals_(intervals), refresh_(refresh) {}

  struct Due {
    bool factors = false;
    bool inverses = false;
    bool operator==(const Due&) const = default;
  };
  Due at(std::int64_t step);

 private:
  void advance();

  RefreshIntervals intervals_;
  Refresh refresh_;
  // Of growing intervals: the step that was asked for last, what is due in it, and the refreshes
  // up to it.
  std::int64_t step_ = -1;
  Due due_;
  std::int64_t factors_ = 0;
  std::int64_t inverses_ = 0;
};

// How many steps do everything, make factors only, and make neither: in one cycle of fixed
// intervals, or over the steps that growing ones are averaged over.
struct RefreshCounts {
  std::int64_t full = 0;
  std::int64_t factors_only = 0;
  std::int64_t neither = 0;
  double steps_per_inverse() const {
    return static_cast<double>(full + factors_only + neither) / static_cast<double>(full);
  }
  bool operator==(const RefreshCounts&) const = default;
};
RefreshCounts refresh_counts(const RefreshIntervals& intervals);

}  // namespace spdkfac::plan
