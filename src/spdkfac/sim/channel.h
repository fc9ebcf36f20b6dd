// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "spdkfac/base/units.h"

namespace spdkfac::sim {

struct BusyTime {
  Seconds start;
  Seconds end;
};

// The network as the collectives of some ranks see it: one message at a time, first in first out,
// whatever its root.
class Channel {
 public:
  // Carries a message that the last rank has reached at `ready`; returns when.
  BusyTime carry(Seconds ready, Seconds duration);

  Seconds free_at() const { return free_at_; }
  // How long it was busy from `time` until it was last free.
  Seconds busy_since(Seconds time) const;
  const std::vector<BusyTime>& busy() const { return busy_; }

 private:
  Seconds free_at_;
  std::vector<BusyTime> busy_;
  std::vector<Seconds> busy_before_;  // of each interval: how long the channel was busy before it
  Seconds busy_total_;
};

// One rank's compute stream. While the channel is busy it runs at `rate_under_communication`;
// `slowness` multiplies all its work. Time only moves forward.
class RankClock {
 public:
  RankClock(double slowness, double rate_under_communication)
      : slowness_(slowness), rate_(rate_under_communication) {}

  Seconds now() const { return now_; }
  // Waits for a message, or would; nothing is expected any more.
  void wait_until(Seconds time) {
    now_ = now_ < time ? time : now_;
    expected_ = Seconds(0);
  }
  // Spends `work` (seconds at full speed) given all that the channel carries meanwhile.
  void compute(Seconds work, const Channel& channel);

  // Announces `work` that will be computed before the next wait.
  void expect(Seconds work) { expected_ += work * slowness_; }
  // How long it still computes what it expects at `start`, not before now(), when the channel has
  // carried all it knows of and is busy from there on.
  Seconds computes_from(Seconds start, const Channel& channel) const;

 private:
  double slowness_;
  double rate_;
  Seconds now_;
  Seconds expected_;
  std::size_t next_busy_ = 0;  // first interval that may end after now_
};

}  // namespace spdkfac::sim
