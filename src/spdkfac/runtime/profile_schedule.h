// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spdkfac::runtime {

// Which steps are timed so that plans can be made again from their times: as many as asked for
// behind the first one, which is for warming up, and, if none of them had factors, the next that
// has. Work that no timed step did would otherwise count as free.
class ProfileSchedule {
 public:
  // `steps` of 0: none. Without `second_order` no step has factors.
  ProfileSchedule(std::int64_t steps, bool second_order)
      : steps_(steps), factors_(!second_order), active_(steps > 0) {}

  bool active() const { return active_; }
  // Whether the coming step is to be timed.
  bool times(bool factors) const { return active_ && warm_ && (timed_ < steps_ || factors); }
  // A step has ended; returns whether the last one that was needed has been timed.
  bool ended(bool factors) {
    if (times(factors)) {
      ++timed_;
      factors_ = factors_ || factors;
    }
    const bool complete = active_ && timed_ >= steps_ && factors_;
    if (complete) active_ = false;
    warm_ = true;
    return complete;
  }

 private:
  std::int64_t steps_;
  bool factors_;  // a step with them was timed
  bool active_;
  bool warm_ = false;
  std::int64_t timed_ = 0;
};

}  // namespace spdkfac::runtime
