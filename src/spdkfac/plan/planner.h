// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/plan/plan_options.h"

namespace spdkfac {

// The plan of one step on `world` ranks. `costs` may be for another number of ranks; it is
// scaled. `intervals` are those of the refresh cycle to which the step belongs. Pure: the same
// inputs give the same plan on every rank. `auto` needs the simulator: see make_best_plan in
// sim/auto_planner.h.
Plan make_plan(const ModelSpec& model, const CostModel& costs, int world,
               const PlanOptions& options, const RefreshIntervals& intervals = {},
               StepKind step = StepKind::kFull);

// The plan of another step of the cycle of `full`: the same owners, since averages and inverses
// stay where they are; messages fused for these costs.
Plan make_plan_between(const Plan& full, const ModelSpec& model, const CostModel& costs,
                       StepKind step);

}  // namespace spdkfac
