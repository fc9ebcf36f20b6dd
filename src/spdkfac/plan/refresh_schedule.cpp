// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/refresh_schedule.h"

#include <algorithm>

namespace spdkfac::plan {
namespace {

constexpr std::int64_t kShare = 10;  // a tenth of the steps so far

bool is_due(std::int64_t step, std::int64_t last, std::int64_t most) {
  return step == 0 || step - last >= std::clamp<std::int64_t>(last / kShare, 1, most);
}

}  // namespace

RefreshSchedule::Due RefreshSchedule::at(std::int64_t step) {
  if (refresh_ == Refresh::kFixed) {
    return {step % intervals_.factors == 0, step % intervals_.inverses == 0};
  }
  if (step < step_) step_ = -1;
  while (step_ < step) advance();
  return due_;
}

void RefreshSchedule::advance() {
  ++step_;
  due_.factors = is_due(step_, factors_, intervals_.factors);
  due_.inverses = due_.factors && is_due(step_, inverses_, intervals_.inverses);
  if (due_.factors) {
    factors_ = step_;
    ++part_;
  }
  if (due_.inverses) {
    inverses_ = step_;
    part_ = parts_ = 0;
  }
}

RefreshPart RefreshSchedule::part(std::int64_t step) {
  if (refresh_ == Refresh::kFixed) {
    return {step % intervals_.inverses / intervals_.factors,
            intervals_.inverses / intervals_.factors};
  }
  at(step);
  if (parts_ == 0) {
    parts_ = part_ + 1;
    RefreshSchedule ahead = *this;
    for (ahead.advance(); !ahead.due_.inverses; ahead.advance()) {
      if (ahead.due_.factors) ++parts_;
    }
  }
  return {part_, parts_};
}

RefreshCounts refresh_counts(const RefreshIntervals& intervals) {
  if (intervals.growing_over == 0) {
    const std::int64_t refreshes = intervals.inverses / intervals.factors;
    return {1, refreshes - 1, intervals.inverses - refreshes};
  }
  RefreshCounts counts;
  RefreshSchedule schedule(intervals, Refresh::kGrowing);
  for (std::int64_t step = 0; step < intervals.growing_over; ++step) {
    const RefreshSchedule::Due due = schedule.at(step);
    ++(due.inverses ? counts.full : due.factors ? counts.factors_only : counts.neither);
  }
  return counts;
}

RefreshPartCounts refresh_part_counts(const RefreshIntervals& intervals) {
  const bool fixed = intervals.growing_over == 0;
  RefreshPartCounts counts;
  RefreshSchedule schedule(intervals, fixed ? Refresh::kFixed : Refresh::kGrowing);
  for (std::int64_t step = 0; step < (fixed ? intervals.inverses : intervals.growing_over);
       ++step) {
    if (!schedule.at(step).factors) continue;
    const auto [index, of] = schedule.part(step);
    std::vector<std::int64_t>& parts = counts[of];
    parts.resize(static_cast<std::size_t>(of));
    ++parts[static_cast<std::size_t>(index)];
  }
  return counts;
}

}  // namespace spdkfac::plan
