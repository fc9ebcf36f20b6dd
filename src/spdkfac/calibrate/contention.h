// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "spdkfac/calibrate/timing.h"
#include "spdkfac/plan/fit.h"

namespace spdkfac {

// Shares of the speed alone, from 0.01, the least that a cluster file holds, to 1.
struct RatesTogether {
  double computation = 1;    // of products while all-reduces keep the channel busy
  double communication = 1;  // of all-reduces while ranks compute
};

// Medians of `repetitions` rounds of three loops: products alone, messages alone, both together; of
// the rank that loses most; the same on all ranks. `all_reduce`: measured before, sizes increasing.
RatesTogether rates_together(const Bench& bench, std::span<const Measurement> all_reduce,
                             int repetitions);

// About how long that takes, and for how many samples it advances the bench.
Seconds contention_estimate(int repetitions);
std::size_t contention_samples(int repetitions);

// What takes `alone` seconds takes `together` seconds when something else goes on beside it for the
// first `busy` of them: in those, work is done at this rate.
double rate_while_busy(Seconds alone, Seconds together, Seconds busy);

}  // namespace spdkfac
