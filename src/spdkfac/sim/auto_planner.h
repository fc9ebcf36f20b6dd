// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/plan/refresh_intervals.h"

namespace spdkfac {

// How often each kind of step comes in one refresh cycle, or in the steps that growing intervals
// are averaged over.
struct StepShare {
  StepKind step = StepKind::kFull;
  std::int64_t count = 1;
};
std::vector<StepShare> refresh_cycle(const PlanOptions& options, const RefreshIntervals& intervals);

// The plans of a refresh cycle, in the order of refresh_cycle, by any algorithm but `auto`.
std::vector<Plan> cycle_plans(const ModelSpec& model, const CostModel& costs, int world,
                              const PlanOptions& options, const RefreshIntervals& intervals);

// Average simulated iteration over a refresh cycle.
Seconds average_iteration(const ModelSpec& model, const CostModel& costs,
                          std::span<const Plan> cycle);
Seconds average_iteration(const ModelSpec& model, const CostModel& costs, int world,
                          const PlanOptions& options, const RefreshIntervals& intervals);

// `auto`: the options with the least simulated average among every named K-FAC algorithm and the
// owner schemes with the choice per layer swept by dimension. Therefore never predicted slower than
// any named algorithm.
PlanOptions best_options(const ModelSpec& model, const CostModel& costs, int world,
                         const RefreshIntervals& intervals, Solver solver = Solver::kInverse);

// make_plan for any algorithm, `auto` included.
Plan make_best_plan(const ModelSpec& model, const CostModel& costs, int world,
                    const PlanOptions& options, const RefreshIntervals& intervals,
                    StepKind step = StepKind::kFull);

}  // namespace spdkfac
