// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/what_if.h"

#include <gtest/gtest.h>

#include "sim/random_cases.h"
#include "spdkfac/sim/auto_planner.h"
#include "spdkfac/sim/simulator.h"
#include "support/models.h"
#include "support/random.h"

namespace spdkfac {
namespace {

using support::affine_costs;
using support::layer_times;
using support::Random;
using support::random_case;
using support::RandomCase;
using support::tiny_model;

// One layer of 10 flops forward, 4 for A and 6 for G; preconditioning takes 2·2·1·(2+1) = 12.
ModelSpec flops_model() {
  ModelSpec model = tiny_model({{2, 1}});
  model.layers[0].times.reset();
  model.layers[0].flops = LayerFlops{Flops(10), Flops(4), Flops(6)};
  return model;
}

sim::Scenario with_rates() {
  CostModel costs = affine_costs(1, 0, 0);
  costs.compute = ComputeRates{FlopsPerSecond(1), FlopsPerSecond(2), FlopsPerSecond(4)};
  return {flops_model(), costs, 1, preset("kfac")};
}

Seconds iteration(const sim::Scenario& s) {
  return average_iteration(s.model, s.costs, s.world, s.options, s.intervals);
}

TEST(Scaled, ByOneChangesNothingToTheLastDigit) {
  Random random(41);
  for (int i = 0; i < 50; ++i) {
    const RandomCase one = random_case(random);
    SCOPED_TRACE(testing::Message() << one);
    const sim::Scenario same =
        sim::scaled({one.model, one.costs, one.plan.world, one.plan.options}, {});
    EXPECT_EQ(simulate(one.plan, same.model, same.costs).iteration,
              simulate(one.plan, one.model, one.costs).iteration);
  }
}

TEST(Scaled, ToNothingTakesNoTime) {
  Random random(42);
  for (int i = 0; i < 50; ++i) {
    const RandomCase one = random_case(random);
    SCOPED_TRACE(testing::Message() << one);
    const sim::Scenario s{one.model, one.costs, one.plan.world, one.plan.options};
    EXPECT_EQ(iteration(sim::scaled(s, sim::kEverythingFree)), Seconds(0));
  }
}

TEST(Scaled, ComputationByRates) {
  // Forward 10, backward 20, factors (4 + 6)/2 = 5, preconditioning 12/4 = 3.
  const sim::Scenario base = with_rates();
  EXPECT_EQ(iteration(base), Seconds(38));
  EXPECT_EQ(iteration(sim::scaled(base, {.forward_backward = 0.5})), Seconds(23));
  EXPECT_EQ(iteration(sim::scaled(base, {.factors = 2})), Seconds(43));
  EXPECT_EQ(iteration(sim::scaled(base, {.precondition = 0})), Seconds(35));
}

TEST(Scaled, ComputationByMeasuredTotals) {
  // 30 s of three forwards; 22 s over 10 flops of factors and 12 of preconditioning, 1 s each.
  sim::Scenario base = with_rates();
  base.costs.compute.reset();
  base.costs.models["tiny"] = {1, Seconds(30), Seconds(22)};
  EXPECT_DOUBLE_EQ(iteration(base).value(), 52);
  EXPECT_DOUBLE_EQ(iteration(sim::scaled(base, {.factors = 0})).value(), 42);
  EXPECT_DOUBLE_EQ(iteration(sim::scaled(base, {.precondition = 0.5})).value(), 46);
}

TEST(Scaled, Inverses) {
  // Dimensions 2 and 1, without any other cost.
  const std::vector<std::pair<InverseCost, double>> costs = {
      {PowerInverse{3, 2}, 3 * 4 + 3},
      {CubicInverse{1, 1, 1, 1}, 15 + 4},
      {CostTable({{1, Seconds(5)}, {2, Seconds(9)}}), 14}};
  for (const auto& [cost, sum] : costs) {
    const sim::Scenario base{tiny_model({{2, 1}}), affine_costs(1, 0, 0, cost), 1, preset("kfac")};
    EXPECT_DOUBLE_EQ(iteration(base).value(), sum);
    EXPECT_DOUBLE_EQ(iteration(sim::scaled(base, {.inverses = 2})).value(), 2 * sum);
    EXPECT_EQ(sim::all_inverses(base.model, base.costs), Seconds(sum));
  }
}

TEST(Scaled, MeasuredPartsOfLayers) {
  sim::Scenario base{tiny_model({{2, 1}}), affine_costs(1, 0, 0, PowerInverse{1, 2}), 1,
                     preset("kfac")};
  base.model.layers[0].times = layer_times(0, 0, 0, 0);
  base.model.layers[0].times->precondition = Seconds(4);
  base.model.layers[0].times->inverse_a = Seconds(8);  // G: 1 s by its dimension
  EXPECT_EQ(iteration(base), Seconds(4 + 8 + 1));
  EXPECT_EQ(sim::all_inverses(base.model, base.costs), Seconds(8 + 1));
  EXPECT_EQ(iteration(sim::scaled(base, {.precondition = 0.5})), Seconds(2 + 8 + 1));
  EXPECT_EQ(iteration(sim::scaled(base, {.inverses = 0.5})), Seconds(4 + 4 + 0.5));
  EXPECT_EQ(iteration(sim::with_inverses_at_most(base, Seconds(3))), Seconds(4 + 3 + 1));
}

TEST(Scaled, MessagesByTheirParts) {
  // sgd sends one tensor of 2 elements: 7 + 0.5 + 2·3 s.
  CostModel costs = affine_costs(2, 0, 0);
  costs.all_reduce = {Seconds(7), Seconds(3), Seconds(0.5)};
  const sim::Scenario base{tiny_model({{2, 1}}), costs, 2, preset("sgd")};
  EXPECT_EQ(iteration(base), Seconds(13.5));
  EXPECT_EQ(iteration(sim::scaled(base, {.bytes = 0})), Seconds(7.5));
  EXPECT_EQ(iteration(sim::scaled(base, {.startups = 0})), Seconds(6));
}

TEST(Scaled, Contention) {
  // A backward pass of 2 s and then, while the gradient of l1 travels for 1 s, that of l0 at half
  // speed: 2 + 1 + 1.5 s, and a message of 1 s. Without contention 2 + 2 + 1.
  CostModel costs = affine_costs(2, 1, 0);
  costs.overheads.compute_rate_under_communication = 0.5;
  const sim::Scenario base{tiny_model({{1, 1}, {1, 1}}, layer_times(0, 2, 0, 0)), costs, 2,
                           preset("sgd")};
  EXPECT_EQ(iteration(base), Seconds(5.5));
  EXPECT_EQ(iteration(sim::scaled(base, {.contention = 0})), Seconds(5));
  // The message takes 2 s, in which 1 s of work is done: 2 + 2 + 1 + 1 s.
  costs.overheads.communication_rate_under_computation = 0.5;
  const sim::Scenario both{base.model, costs, 2, preset("sgd")};
  EXPECT_EQ(iteration(both), Seconds(6));
  EXPECT_EQ(iteration(sim::scaled(both, {.contention = 0})), Seconds(5));
}

TEST(WithInversesAtMost, CutsOnlyTheLongOnes) {
  const sim::Scenario base{tiny_model({{4, 2}, {1, 2}}), affine_costs(1, 0, 0, PowerInverse{1, 2}),
                           1, preset("kfac")};
  const CostModel cut = sim::with_inverses_at_most(base, Seconds(10)).costs;
  EXPECT_EQ(cut.inverse_time(4), Seconds(10));
  EXPECT_EQ(cut.inverse_time(2), Seconds(4));
  EXPECT_EQ(cut.inverse_time(1), Seconds(1));
  EXPECT_EQ(sim::largest_inverse(base.model, base.costs), Seconds(16));
}

}  // namespace
}  // namespace spdkfac
