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
  RefreshSchedule(const RefreshIntervals& intervals, bool growing)
      : intervals_(intervals), growing_(growing) {}

  struct Due {
    bool factors = false;
    bool inverses = false;
    bool operator==(const Due&) const = default;
  };
  Due at(std::int64_t step);

 private:
  void advance();

  RefreshIntervals intervals_;
  bool growing_;
  // Of growing intervals: the step that was asked for last, what is due in it, and the refreshes
  // up to it.
  std::int64_t step_ = -1;
  Due due_;
  std::int64_t factors_ = 0;
  std::int64_t inverses_ = 0;
};

}  // namespace spdkfac::plan
