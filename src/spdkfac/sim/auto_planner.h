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
  std::vector<bool> renewed = {};  // layers whose inverses a full step renews; empty: all
};
// A refresh that is spread has a full step for each of its parts.
std::vector<StepShare> refresh_cycle(const ModelSpec& model, const PlanOptions& options,
                                     const RefreshIntervals& intervals);

// The plans of a refresh cycle, one for each kind of step, by any algorithm but `auto`.
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
