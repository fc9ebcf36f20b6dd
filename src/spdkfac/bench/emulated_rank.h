// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/comm/emulated_link.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/runtime/distribution.h"

namespace spdkfac::bench {

// A rank that stands for one of many times only what it does itself. What others would invert or
// precondition takes as many times as long as the costs say as the timed one nearest in size does.
ModelSpec with_absent_times(ModelSpec model, const CostModel& costs);

// How long messages take on the link of an emulated rank: what the simulator charges.
EmulatedLink::Duration link_of(const CostModel& costs);

// Plans from such times in which `rank` does the work of the one that computes longest.
Planner planner_of_emulated_rank(Planner planner, const CostModel& costs, int rank);

}  // namespace spdkfac::bench
