// SPDX-License-Identifier: Apache-2.0
// Timelines worked out by hand for both orders of a layer's passes and factors.
#include <gtest/gtest.h>

#include "sim/timeline_support.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/simulator.h"
#include "support/models.h"

namespace spdkfac {
namespace {

using namespace timeline;  // NOLINT(google-build-using-namespace)
using support::affine_costs;

// Collectives 1 + m/2 seconds, inverses of d rows d seconds.
CostModel costs_with(TaskOrder order) {
  CostModel costs = affine_costs(2, 1, 0.5, one_second_per_row());
  costs.task_order = order;
  return costs;
}

// Every factor in a message of its own, inverted by every rank.
Plan unfused_plan(const CostModel& costs) {
  PlanOptions options = preset("pipe");
  options.fusion = Fusion::kNone;
  return make_plan(two_layers(), costs, 2, options);
}

TEST(TaskOrder, FactorsBetweenPassesFollowTheRuntime) {
  const CostModel costs = costs_with(TaskOrder::kFactorsBetweenPasses);
  const Plan plan = unfused_plan(costs);

  // F_0 0-1, A_0 1-2, F_1 2-4, A_1 4-8, G_1 8-9, B_1 9-12, G_0 12-14, B_0 14-16.
  // A_0 ready at 2, 4 s: 2-6. A_1 at 8, 2.5 s: 8-10.5. G_1 at 9, 1.5 s: 10.5-12. Gradient 1 at 12,
  // 2 s: 12-14. G_0 at 14, 2.5 s: 14-16.5. Gradient 0 at 16, 4 s: 16.5-20.5.
  EXPECT_EQ(plan.messages,
            std::vector<Message>({all_reduce({factor_a(0)}, 6), all_reduce({factor_a(1)}, 3),
                                  all_reduce({factor_g(1)}, 1), all_reduce({gradient(1)}, 2),
                                  all_reduce({factor_g(0)}, 3), all_reduce({gradient(0)}, 6)}));
  const IterationResult simulation = simulate(plan, two_layers(), costs);
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 2, 6},
                                           {kFactorComm, 8, 10.5},
                                           {kFactorComm, 10.5, 12},
                                           {kGradComm, 12, 14},
                                           {kFactorComm, 14, 16.5},
                                           {kGradComm, 16.5, 20.5}}));
  // Inverses 3, 2, 2, 1 behind the last message.
  const Timeline work = {{kPass, 0, 1},          {kFactor, 1, 2},        {kPass, 2, 4},
                         {kFactor, 4, 8},        {kFactor, 8, 9},        {kPass, 9, 12},
                         {kFactor, 12, 14},      {kPass, 14, 16},        {kInverse, 20.5, 23.5},
                         {kInverse, 23.5, 25.5}, {kInverse, 25.5, 27.5}, {kInverse, 27.5, 28.5}};
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(compute(simulation, rank), work);
  EXPECT_EQ(simulation.iteration, Seconds(28.5));
}

TEST(TaskOrder, FactorsAroundPassesFollowThePaper) {
  const CostModel costs = costs_with(TaskOrder::kFactorsAroundPasses);
  const Plan plan = unfused_plan(costs);

  // A_0 0-1, F_0 1-2, A_1 2-6, F_1 6-8, B_1 8-11, G_1 11-12, B_0 12-14, G_0 14-16.
  // A_0 ready at 1: 1-5. A_1 at 6: 6-8.5. Gradient 1 at 11: 11-13. G_1 at 12: 13-14.5.
  // Gradient 0 at 14: 14.5-18.5. G_0 at 16: 18.5-21. Inverses 8 s.
  EXPECT_EQ(plan.messages,
            std::vector<Message>({all_reduce({factor_a(0)}, 6), all_reduce({factor_a(1)}, 3),
                                  all_reduce({gradient(1)}, 2), all_reduce({factor_g(1)}, 1),
                                  all_reduce({gradient(0)}, 6), all_reduce({factor_g(0)}, 3)}));
  const IterationResult simulation = simulate(plan, two_layers(), costs);
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 1, 5},
                                           {kFactorComm, 6, 8.5},
                                           {kGradComm, 11, 13},
                                           {kFactorComm, 13, 14.5},
                                           {kGradComm, 14.5, 18.5},
                                           {kFactorComm, 18.5, 21}}));
  EXPECT_EQ(simulation.iteration, Seconds(29));
}

TEST(TaskOrder, PlanOfOneOrderRunsInTheOther) {
  // The plan of the paper's order on a cluster that follows the runtime: gradient 1 comes before
  // G_1 in the plan and is ready at 12, so G_1, ready at 9, waits for it.
  const Plan plan = unfused_plan(costs_with(TaskOrder::kFactorsAroundPasses));
  const IterationResult simulation =
      simulate(plan, two_layers(), costs_with(TaskOrder::kFactorsBetweenPasses));
  // A_0 2-6, A_1 8-10.5, gradient 1 12-14, G_1 14-15.5, gradient 0 at 16: 16-20, G_0 20-22.5.
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 2, 6},
                                           {kFactorComm, 8, 10.5},
                                           {kGradComm, 12, 14},
                                           {kFactorComm, 14, 15.5},
                                           {kGradComm, 16, 20},
                                           {kFactorComm, 20, 22.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(30.5));
}

TEST(TaskOrder, FirstOrderAndBulkStepsDoNotDependOnIt) {
  for (const char* algorithm : {"sgd", "d-kfac"}) {
    const auto iteration = [&](TaskOrder order) {
      const CostModel costs = costs_with(order);
      const ModelSpec model = two_layers();
      return simulate(make_plan(model, costs, 2, preset(algorithm)), model, costs).iteration;
    };
    EXPECT_EQ(iteration(TaskOrder::kFactorsBetweenPasses),
              iteration(TaskOrder::kFactorsAroundPasses))
        << algorithm;
  }
}

}  // namespace
}  // namespace spdkfac
