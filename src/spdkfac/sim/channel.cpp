// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/channel.h"

#include <algorithm>

namespace spdkfac::sim {

BusyTime Channel::carry(Seconds ready, Seconds duration) {
  const Seconds start = std::max(ready, free_at_);
  free_at_ = start + duration;
  if (duration > Seconds(0)) {
    busy_.push_back({start, free_at_});
    busy_before_.push_back(busy_total_);
    busy_total_ += duration;
  }
  return {start, free_at_};
}

Seconds Channel::busy_since(Seconds time) const {
  const auto after = std::partition_point(
      busy_.begin(), busy_.end(), [&](const BusyTime& message) { return message.end <= time; });
  if (after == busy_.end()) return Seconds(0);
  const Seconds gone = std::max(Seconds(0), time - after->start);
  return busy_total_ - busy_before_[static_cast<std::size_t>(after - busy_.begin())] - gone;
}

void RankClock::compute(Seconds work, const Channel& channel) {
  work = work * slowness_;
  expected_ = std::max(Seconds(0), expected_ - work);
  if (rate_ < 1) {
    const std::vector<BusyTime>& busy = channel.busy();
    while (next_busy_ < busy.size() && busy[next_busy_].end <= now_) ++next_busy_;
    for (; next_busy_ < busy.size(); ++next_busy_) {
      const BusyTime& message = busy[next_busy_];
      const Seconds alone = std::max(Seconds(0), message.start - now_);
      if (work <= alone) break;
      const Seconds start = now_ + alone;
      const Seconds within = (message.end - start) * rate_;
      if (work - alone <= within) {
        now_ = start + (work - alone) / rate_;
        return;
      }
      work -= alone + within;
      now_ = message.end;
    }
  }
  now_ += work;
}

Seconds RankClock::computes_from(Seconds start, const Channel& channel) const {
  const Seconds done = start - now_ - channel.busy_since(now_) * (1 - rate_);
  return std::max(Seconds(0), expected_ - done) / rate_;
}

}  // namespace spdkfac::sim
