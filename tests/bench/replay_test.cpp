// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/replay.h"

#include <gtest/gtest.h>

#include "spdkfac/plan/planner.h"
#include "support/models.h"

namespace spdkfac::bench {
namespace {

// One layer of forward 1 s and backward 1 s, and nothing else that costs anything.
TimedSteps steps_of(const std::vector<double>& slowness) {
  TimedSteps steps;
  steps.model = support::tiny_model({{1, 1}}, support::layer_times(1, 1, 0, 0));
  for (const double factor : slowness) steps.slowness.push_back({Slowness{.passes = factor}});
  return steps;
}

IterationResult replay_of(const TimedSteps& steps) {
  const CostModel costs = support::affine_costs(1, 0, 0, CubicInverse{});
  const Plan plan = make_plan(steps.model, costs, 1, preset("sgd"));
  return replay(steps, costs, plan, BreakdownOf::kLongestRank);
}

TEST(Replay, OfAnEvenNumberOfStepsTakesTheMeanOfTheTwoInTheMiddle) {
  // Iterations of 2, 4, 8 and 20 s: the median is (4 + 8) / 2.
  const IterationResult result = replay_of(steps_of({1, 4, 2, 10}));
  EXPECT_DOUBLE_EQ(result.iteration.value(), 6);
  EXPECT_DOUBLE_EQ(result.breakdown[Category::kForwardBackward].value(), 6);
  // The shown step is one that was simulated: that of 4 s.
  EXPECT_DOUBLE_EQ(result.trace.iteration().value(), 4);
}

TEST(Replay, OfAnOddNumberOfStepsIsTheOneInTheMiddle) {
  const IterationResult result = replay_of(steps_of({3, 1, 2}));
  EXPECT_DOUBLE_EQ(result.iteration.value(), 4);
  EXPECT_DOUBLE_EQ(result.trace.iteration().value(), 4);
}

TEST(AveragePasses, AreTheMeanOfAllVariants) {
  std::vector<TimedSteps> variants = {steps_of({1}), steps_of({1})};
  variants[1].model.layers[0].times->forward = Seconds(3);
  average_passes(variants);
  for (const TimedSteps& one : variants) {
    EXPECT_EQ(one.model.layers[0].times->forward, Seconds(2));  // (1 + 3) / 2
    EXPECT_EQ(one.model.layers[0].times->backward, Seconds(1));
  }
}

}  // namespace
}  // namespace spdkfac::bench
