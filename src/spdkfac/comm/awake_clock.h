// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace spdkfac::comm {

// Counts the time in which this process was awake, for timeouts. A gap between two ticks counts as
// one second at most, so the ranks of a job that was stopped and continued as a whole do not give
// up on each other. Tick more often than once a second while a timeout runs.
class AwakeClock {
 public:
  using Clock = std::chrono::steady_clock;

  void tick() {
    const Clock::time_point now = Clock::now();
    awake_ += std::min<Clock::duration>(now - last_, std::chrono::seconds(1));
    last_ = now;
  }
  // The time counted up to the last tick.
  Clock::duration now() const { return awake_; }

 private:
  Clock::time_point last_ = Clock::now();
  Clock::duration awake_{0};
};

}  // namespace spdkfac::comm
