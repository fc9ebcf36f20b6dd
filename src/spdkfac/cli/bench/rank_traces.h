// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "spdkfac/base/trace.h"
#include "spdkfac/cli/ranks.h"
#include "spdkfac/runtime/preconditioner.h"

namespace spdkfac::cli {

// Joins the traces of ranks, each on its own clock and later by a shift, to one with one channel,
// as the simulator has it: a message is on its way from when the last rank has started it (before,
// the others wait for that rank) until the last rank has it.
Trace joined(const std::vector<Trace>& ranks, const std::vector<Seconds>& shifts);

// The steps of all ranks on the clock of the first one.
class RankTraces {
 public:
  // Compares the clocks; all ranks together.
  explicit RankTraces(const Ranks& ranks);

  // The last step, from where the first rank began it; the same on all ranks, which call it
  // together.
  Trace last_step(Preconditioner& kfac) const;

 private:
  const Ranks& ranks_;
  Seconds clock_offset_;
};

}  // namespace spdkfac::cli
