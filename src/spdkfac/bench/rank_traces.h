// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/trace/trace.h"
#include "spdkfac/train/ranks.h"

namespace spdkfac::bench {

// The steps of all ranks on the clock of the first one.
class RankTraces {
 public:
  // Compares the clocks; all ranks together.
  explicit RankTraces(const train::Ranks& ranks);

  // The last step, from where the first rank began it; the same on all ranks, which call it
  // together.
  Trace last_step(Preconditioner& kfac) const;

 private:
  const train::Ranks& ranks_;
  Seconds clock_offset_;
};

}  // namespace spdkfac::bench
