// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace spdkfac {

// How long this process has run, for timeouts. A gap between two ticks counts for a second at most:
// when a whole job is stopped and continued, its ranks do not give each other up.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  void tick() {
    const Clock::time_point now = Clock::now();
    run_ += std::min<Clock::duration>(now - last_, std::chrono::seconds(1));
    last_ = now;
  }
  // At the last tick.
  Clock::duration now() const { return run_; }

 private:
  Clock::time_point last_ = Clock::now();
  Clock::duration run_{0};
};

}  // namespace spdkfac
