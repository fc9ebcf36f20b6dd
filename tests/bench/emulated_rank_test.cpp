// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/emulated_rank.h"

#include <gtest/gtest.h>

#include "spdkfac/plan/planner.h"
#include "support/models.h"

namespace spdkfac::bench {
namespace {

// Inverses of d rows take d seconds, preconditioning 2·d_A·d_G·(d_A + d_G) / 32.
CostModel costs_for(int world) {
  CostModel costs = support::affine_costs(world, 1, 0.5, CubicInverse{.c1 = 1});
  costs.compute = ComputeRates{FlopsPerSecond(32), FlopsPerSecond(32), FlopsPerSecond(32)};
  return costs;
}

ModelSpec two_layers() {
  return support::tiny_model({{4, 2}, {8, 2}}, support::layer_times(1, 1, 1, 1));
}

TEST(EmulatedRank, TakesFromTheNearestWhatOthersWouldTime) {
  ModelSpec model = two_layers();
  model.layers[0].times->inverse_a = Seconds(2);     // half of what the costs say
  model.layers[0].times->inverse_g = Seconds(6);     // three times
  model.layers[0].times->precondition = Seconds(6);  // 2·4·2·6/32 = 3: twice

  const ModelSpec all = with_absent_times(model, costs_for(4));

  EXPECT_EQ(all.layers[0].times->inverse_a, Seconds(2));
  EXPECT_EQ(all.layers[0].times->inverse_g, Seconds(6));
  EXPECT_EQ(all.layers[0].times->precondition, Seconds(6));
  EXPECT_EQ(all.layers[1].times->inverse_a, Seconds(4));      // 8, as that of 4 rows
  EXPECT_EQ(all.layers[1].times->inverse_g, Seconds(6));      // of 2 rows as well
  EXPECT_EQ(all.layers[1].times->precondition, Seconds(20));  // 2·8·2·10/32 = 10
}

TEST(EmulatedRank, LeavesWhatNothingWasTimedOfToTheCosts) {
  const ModelSpec all = with_absent_times(two_layers(), costs_for(4));
  EXPECT_FALSE(all.layers[0].times->inverse_a.has_value());
  EXPECT_FALSE(all.layers[1].times->precondition.has_value());
  ModelSpec untimed = two_layers();
  untimed.layers[1].times.reset();
  EXPECT_FALSE(with_absent_times(untimed, costs_for(4)).layers[1].times.has_value());
}

TEST(EmulatedRank, DoesTheWorkOfTheOneThatComputesLongest) {
  const CostModel costs = costs_for(4);
  const Planner plain = [&](const ModelSpec& model, const RefreshIntervals& intervals,
                            StepKind kind) {
    return make_plan(model, costs, 4, preset("mpd-kfac"), intervals, kind);
  };
  // Dealt out in turn: A of the first layer, 4 s, to rank 0; G, 2 s, to 1; A of the second, 8 s, to
  // 2; G, 2 s, to 3.
  const Plan dealt = plain(two_layers(), {}, StepKind::kFull);
  ASSERT_EQ(dealt.placements[2].owner, 2);

  const Plan plan = planner_of_emulated_rank(plain, costs, 3)(two_layers(), {}, StepKind::kFull);
  EXPECT_EQ(plan.placements[0].owner, 0);
  EXPECT_EQ(plan.placements[1].owner, 1);
  EXPECT_EQ(plan.placements[2].owner, 3);
  EXPECT_EQ(plan.placements[3].owner, 2);

  // Once its 2 s are timed as 20, those of the other G are taken to be 20 as well: of equals the
  // lowest rank, 1, is the one.
  ModelSpec timed = two_layers();
  timed.layers[1].times->inverse_g = Seconds(20);
  timed.layers[1].times->inverse_a = Seconds(8);
  const Plan again = planner_of_emulated_rank(plain, costs, 3)(timed, {}, StepKind::kFull);
  EXPECT_EQ(again.placements[1].owner, 3);
  EXPECT_EQ(again.placements[3].owner, 1);
}

}  // namespace
}  // namespace spdkfac::bench
