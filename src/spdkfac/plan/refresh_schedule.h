// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "spdkfac/plan/refresh_intervals.h"
#include "spdkfac/plan/refresh_parts.h"

namespace spdkfac::plan {

// Which steps of a run renew factors and inverses. A function of the step alone, so all ranks agree
// and a run that is resumed goes on alike.
//
// Fixed: every so many steps. Growing: often early, when factors change most, and rarely later: a
// tenth of the steps so far lies between two refreshes, at least 1 and at most the interval.
// Inverses are then renewed in steps that renew factors.
//
// A refresh that is spread begins in a step that renews inverses and lasts to the next such step:
// each step in between that renews factors does a part of it, so that each layer has its turn once
// in each refresh. It needs intervals of which one is a multiple of the other.
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
  // Of a spread refresh, in a step that renews factors.
  RefreshPart part(std::int64_t step);

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
  std::int64_t part_ = 0;   // of the refresh under way
  std::int64_t parts_ = 0;  // and how many it has, once asked
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

// Of spread refreshes: in how many of these steps each part comes, by the number of parts.
using RefreshPartCounts = std::map<std::int64_t, std::vector<std::int64_t>>;
RefreshPartCounts refresh_part_counts(const RefreshIntervals& intervals);

}  // namespace spdkfac::plan
