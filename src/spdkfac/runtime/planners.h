// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <c10/core/Device.h>

#include "spdkfac/base/log.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/runtime/distribution.h"

namespace spdkfac::runtime {

// Plans of these options under these costs, `auto` included.
Planner planner_of_costs(const CostModel& costs, int world, const PlanOptions& options);

// The plan of a full step; steps between refreshes follow its options and intervals, so that all
// place factors alike. One of another number of ranks is a ConfigError that begins with `where`.
Planner planner_of_plan(const Plan& plan, int world, const std::string& where);

// What the source stands for on these ranks; all call it. MeasureHere measures now, and logs where
// the costs come from. Plans are for the solver, whatever their source says.
Planner make_planner(const PlanSource& source, Solver solver, Communicator& communicator,
                     c10::Device device, Logger& logger);

}  // namespace spdkfac::runtime
