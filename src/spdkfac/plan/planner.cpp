// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/planner.h"

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/plan/compute_stream.h"
#include "spdkfac/plan/factor_placement.h"
#include "spdkfac/plan/message_planner.h"

namespace spdkfac {

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
  const std::vector<LayerCosts> layers = layer_costs(model, here);
  const bool with_factors = options.second_order() && step != StepKind::kGradients;

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
  if (world > 1) {
    const plan::ComputeStream stream =
        plan::compute_stream(model, layers, here, options.factor_schedule, with_factors);
    plan.messages = plan::plan_messages(model, stream, here, options, plan.placements);
    if (step == StepKind::kFull) {
      if (auto means = plan::diagonal_means_message(options, plan.placements)) {
        plan.messages.push_back(std::move(*means));
      }
    }
  }
  return plan;
}

}  // namespace spdkfac
