// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/planners.h"

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/sim/auto_planner.h"

namespace spdkfac {

Planner planner_of_costs(const CostModel& costs, int world, const PlanOptions& options) {
  return [costs, world, options](const ModelSpec& model, const RefreshIntervals& intervals,
                                 StepKind step) {
    return make_best_plan(model, costs, world, options, intervals, step);
  };
}

Planner planner_of_plan(const Plan& plan, int world, const std::string& where) {
  if (plan.world != world) {
    throw ConfigError(fmt::format("{}: is for {} ranks, this run has {}; make a plan for as many",
                                  where, plan.world, world));
  }
  return [plan, world](const ModelSpec& model, const RefreshIntervals&, StepKind step) {
    if (step == plan.step) return plan;
    return make_best_plan(model, assumed_costs(world), world, plan.options, plan.intervals, step);
  };
}

}  // namespace spdkfac
