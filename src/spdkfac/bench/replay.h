// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/runtime/step_meter.h"
#include "spdkfac/sim/iteration_result.h"

namespace spdkfac::bench {

// Whose breakdown is shown: that of the rank that computes longest, or the mean of all ranks.
enum class BreakdownOf { kLongestRank, kMeanOfRanks };

// Category by category the median of the samples.
CategoryTimes median_parts(const std::vector<CategoryTimes>& samples);

// Forward and backward passes are the same whatever the algorithm: sets them to the mean of all
// variants, which varies less.
void average_passes(std::vector<TimedSteps>& variants);

// Simulates each timed step, in which now one rank and now another is late, and takes medians as of
// measured steps. Trace, inversions and messages are those of the step in the middle.
IterationResult replay(const TimedSteps& timed, const CostModel& costs, const Plan& plan,
                       BreakdownOf whose);

}  // namespace spdkfac::bench
