// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/planner.h"

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/plan/compute_stream.h"
#include "spdkfac/plan/factor_placement.h"
#include "spdkfac/plan/message_planner.h"

namespace spdkfac {
namespace {

void plan_step_messages(Plan& plan, const ModelSpec& model, std::span<const LayerCosts> layers,
                        const CostModel& costs) {
  if (plan.world == 1) return;
  const PlanOptions& options = plan.options;
  const bool with_factors = sends_factors(plan);
  const plan::ComputeStream stream =
      plan::compute_stream(model, layers, costs, options.factor_schedule, with_factors);
  plan.messages = plan::plan_messages(model, stream, costs, options, plan.placements);
  if (plan.step != StepKind::kFull) return;
  if (auto means = plan::diagonal_means_message(model, options, plan.placements)) {
    plan.messages.push_back(std::move(*means));
  }
}

}  // namespace

Plan make_plan(const ModelSpec& model, const CostModel& costs, int world,
               const PlanOptions& options, const RefreshIntervals& intervals, StepKind step) {
  SPDKFAC_CHECK(options.algorithm != kAutoAlgorithm, "auto is planned by make_best_plan");
  if (world < 1) {
    throw ConfigError(
        fmt::format("plan: world={} is not a number of ranks; use at least 1", world));
  }
  validate(options);
  if (options.second_order()) validate(intervals);
  const CostModel here = costs.for_world(world);
  const std::vector<LayerCosts> layers = layer_costs(model, here, options);

  Plan plan;
  plan.algorithm = options.algorithm;
  plan.model = model.name;
  plan.world = world;
  plan.step = step;
  plan.options = options;
  if (options.second_order()) {
    plan.intervals = intervals;
    plan.placements = plan::place_factors(model, layers, here, options, intervals);
  }
  plan_step_messages(plan, model, layers, here);
  return plan;
}

Plan make_plan_between(const Plan& full, const ModelSpec& model, const CostModel& costs,
                       StepKind step) {
  const CostModel here = costs.for_world(full.world);
  Plan plan = full;
  plan.step = step;
  plan.messages.clear();
  plan.predicted_iteration.reset();
  plan.predicted_breakdown = {};
  plan_step_messages(plan, model, layer_costs(model, here, plan.options), here);
  return plan;
}

}  // namespace spdkfac
