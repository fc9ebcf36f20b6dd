// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/channel.h"

#include <algorithm>

namespace spdkfac {

Interval Channel::carry(Seconds ready, Seconds duration) {
  const Seconds start = std::max(ready, free_at_);
  free_at_ = start + duration;
  if (duration > Seconds(0)) busy_.push_back({start, free_at_});
  return {start, free_at_};
}

void WorkerClock::compute(Seconds work, const Channel& channel) {
  work = work * slowness_;
  if (rate_ < 1) {
    const std::vector<Interval>& busy = channel.busy();
    while (next_busy_ < busy.size() && busy[next_busy_].end <= now_) ++next_busy_;
    for (; next_busy_ < busy.size(); ++next_busy_) {
      const Interval& message = busy[next_busy_];
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

}  // namespace spdkfac
