// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "spdkfac/calibrate/timing.h"
#include "spdkfac/plan/fit.h"

namespace spdkfac {

// How fast matrix products run while all-reduces keep the channel busy, as a share of their speed
// alone: from 0.01, the least that a cluster file holds, to 1. Median of `repetitions` pairs of
// loops with and without messages, of the rank that loses most; the same on all ranks.
// `all_reduce`: measured before, sizes increasing.
double compute_rate_under_communication(const Bench& bench, std::span<const Measurement> all_reduce,
                                        int repetitions);

// About how long that takes, and for how many samples it advances the bench.
Seconds contention_estimate(int repetitions);
std::size_t contention_samples(int repetitions);

// A loop of `alone` seconds takes `together` seconds while the channel is busy for the first `busy`
// of them: in those, work is done at this rate.
double rate_while_busy(Seconds alone, Seconds together, Seconds busy);

}  // namespace spdkfac
