// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/planners.h"

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/calibrate/quick_calibration.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/auto_planner.h"

namespace spdkfac::runtime {
namespace {

// A small cluster of common make, 10 Gbit/s and 50 GFLOP/s. Steps between refreshes of a given plan
// are planned with it: their placement is the plan's, only the fusion of messages may differ.
CostModel assumed_costs(int world) {
  CostModel costs;
  costs.name = "assumed";
  costs.world = world;
  const double bytes_per_second = 1.25e9;
  const double share = (world - 1.0) / world;
  const Seconds startup(1e-4);
  const Seconds element(share * kBytesPerElement / bytes_per_second);
  costs.all_reduce = CollectiveCost(startup, element * 2.0);
  costs.reduce = costs.broadcast = CollectiveCost(startup, element);
  const double rate = 5e10;
  costs.inverse = CubicInverse{.c0 = 1e-5, .c3 = 1 / rate};
  costs.compute = ComputeRates{FlopsPerSecond(rate), FlopsPerSecond(rate), FlopsPerSecond(rate)};
  return costs;
}

CostModel measured_costs(const MeasureHere& source, Communicator& communicator, c10::Device device,
                         Logger& logger) {
  calibrate::QuickCalibration quick =
      calibrate::quick_calibration(communicator, device,
                                   {.recalibrate = source.recalibrate,
                                    .transport = source.transport,
                                    .cache_folder = source.cache_folder});
  if (!quick.warning.empty()) logger.warn(quick.warning);
  if (quick.measured) {
    logger.info("kfac: costs measured in a quick calibration");
  } else if (communicator.rank() == 0) {
    logger.info(fmt::format("kfac: costs of an earlier calibration ({})", quick.file.string()));
  }
  return std::move(quick.costs);
}

PlanOptions options_of(const PlanSource& source) {
  if (const auto* measure = std::get_if<MeasureHere>(&source)) return measure->options;
  if (const auto* known = std::get_if<PlanForCosts>(&source)) return known->options;
  if (const auto* given = std::get_if<FollowPlan>(&source)) return given->plan.options;
  return {};  // its plans are looked at as they are made
}

}  // namespace

Planner planner_of_costs(const CostModel& costs, int world, const PlanOptions& options) {
  return [costs, world, options](const ModelSpec& model, const RefreshIntervals& intervals,
                                 StepKind step) {
    return make_best_plan(model, costs, world, options, intervals, step);
  };
}

Planner planner_of_plan(const Plan& plan, int world, const std::string& where) {
  if (plan.world != world) {
    throw ConfigError(
        fmt::format("{}: is for {} ranks, this run has {}; make a plan for that number", where,
                    plan.world, world));
  }
  if (plan.step != StepKind::kFull) {
    throw ConfigError(fmt::format(
        "{}: is for steps of kind {}; make the plan of a full step, from which the others "
        "follow",
        where, name_of(step_names(), plan.step)));
  }
  return [plan, world](const ModelSpec& model, const RefreshIntervals&, StepKind step) {
    if (step == plan.step) return plan;
    return make_plan_between(plan, model, assumed_costs(world), step);
  };
}

Planner make_planner(const PlanSource& source, Solver solver, Communicator& communicator,
                     c10::Device device, Logger& logger) {
  const int world = communicator.size();
  PlanOptions options = options_of(source);
  require_trainable(options);
  if (options.second_order()) options.solver = solver;
  if (const auto* measure = std::get_if<MeasureHere>(&source)) {
    return planner_of_costs(measured_costs(*measure, communicator, device, logger), world, options);
  }
  if (const auto* known = std::get_if<PlanForCosts>(&source)) {
    if (known->costs.world != world) {
      throw ConfigError(
          fmt::format("cluster {}: is for {} ranks, this run has {}; pass its for_world({})",
                      known->costs.name, known->costs.world, world, world));
    }
    return planner_of_costs(known->costs, world, options);
  }
  if (const auto* given = std::get_if<FollowPlan>(&source)) {
    Plan plan = given->plan;
    plan.options.solver = options.solver;
    return planner_of_plan(plan, world, given->where);
  }
  return [own = std::get<CustomPlanner>(source).planner, solver](
             const ModelSpec& model, const RefreshIntervals& intervals, StepKind step) {
    Plan plan = own(model, intervals, step);
    if (plan.options.second_order()) plan.options.solver = solver;
    return plan;
  };
}

}  // namespace spdkfac::runtime
