// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "spdkfac/trace/trace.h"

namespace spdkfac {

// Where one rank's iteration goes; the parts add up to trace.iteration(). Computation counts in
// full, communication only where it is not hidden behind computation of that rank. When the rank
// neither computes nor communicates it waits for another: the wait counts as what that rank has
// spent more time on, in proportion, since both last began a message.
CategoryTimes breakdown(const Trace& trace, int rank);

// The mean over all ranks, which adds up as well. Of a measured trace it says more than any one
// rank: which of equal ranks computes longest, or gets its messages last, is chance.
CategoryTimes mean_breakdown(const Trace& trace);

// The rank that computes longest (ties: the lowest): the one whose breakdown explains the
// iteration.
int critical_rank(const Trace& trace);

// The part of a breakdown that is communication.
Seconds exposed_communication(const CategoryTimes& breakdown);

// That messages of factors were on the channel of rank 0.
Seconds factor_messages(const Trace& trace);

struct RankUtilisation {
  Seconds compute;  // its compute lane is busy
  Seconds channel;  // its channel is busy
  Seconds hidden;   // both
};
std::vector<RankUtilisation> utilisation(const Trace& trace);

}  // namespace spdkfac
