// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "spdkfac/base/units.h"

namespace spdkfac {

struct Interval {
  Seconds start;
  Seconds end;
};

// The network as every collective sees it: each involves all workers, so one message at a time,
// first in first out, whatever its root.
class Channel {
 public:
  // Carries a message that the last worker has reached at `ready`; returns when.
  Interval carry(Seconds ready, Seconds duration);

  Seconds free_at() const { return free_at_; }
  const std::vector<Interval>& busy() const { return busy_; }

 private:
  Seconds free_at_;
  std::vector<Interval> busy_;
};

// One worker's compute stream. While the channel is busy it runs at `rate_under_communication`;
// `slowness` multiplies all its work. Time only moves forward.
class WorkerClock {
 public:
  WorkerClock(double slowness, double rate_under_communication)
      : slowness_(slowness), rate_(rate_under_communication) {}

  Seconds now() const { return now_; }
  void wait_until(Seconds time) { now_ = now_ < time ? time : now_; }
  // Spends `work` (seconds at full speed) given all that the channel carries meanwhile.
  void compute(Seconds work, const Channel& channel);

 private:
  double slowness_;
  double rate_;
  Seconds now_;
  std::size_t next_busy_ = 0;  // first interval that may end after now_
};

}  // namespace spdkfac
