// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/predict.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/plan/planner.h"
#include "support/models.h"

namespace spdkfac {
namespace {

// Messages take 1 s and 0.5 s an element, inverses of d rows d seconds.
CostModel costs_for(int world) {
  return support::affine_costs(world, 1, 0.5, CubicInverse{.c1 = 1});
}

ModelSpec two_even_layers() {
  return support::tiny_model({{4, 2}, {8, 2}}, support::layer_times(1, 1, 1, 1));
}

TEST(Predict, OfAPlanIsItsSimulation) {
  const ModelSpec model = two_even_layers();
  const CostModel costs = costs_for(2);
  const Plan plan = make_plan(model, costs, 2, preset("d-kfac"));
  const IterationResult simulated = simulate(plan, model, costs);
  const Prediction prediction = predict(model, costs, plan);
  EXPECT_EQ(prediction.result.iteration, simulated.iteration);
  EXPECT_EQ(prediction.result.iteration, simulated.trace.iteration());
  EXPECT_EQ(prediction.full_step, simulated.iteration);
  EXPECT_EQ(prediction.result.inverse_load, simulated.inverse_load);
  EXPECT_EQ(prediction.result.sent_bytes, bytes_per_worker(plan, model));
  EXPECT_EQ(prediction.plan.predicted_iteration, simulated.iteration);
  EXPECT_EQ(prediction.plan.predicted_breakdown, simulated.breakdown);
  EXPECT_EQ(prediction.utilisation.size(), 2U);
}

TEST(Predict, ResultsWithoutATraceHaveNoParts) {
  const ModelSpec model = two_even_layers();
  const CostModel costs = costs_for(2);
  const Plan plan = make_plan(model, costs, 2, preset("d-kfac"));
  const IterationResult result = simulate(plan, model, costs, {.trace = false});
  EXPECT_EQ(result.breakdown, CategoryTimes());
  EXPECT_EQ(result.factor_messages, Seconds(0));
  EXPECT_EQ(result.sent_bytes, bytes_per_worker(plan, model));
}

TEST(Predict, GrowingIntervalsAreAveragedOverTheFirstSteps) {
  const ModelSpec model = two_even_layers();
  const CostModel costs = costs_for(2);
  for (const char* algorithm : {"d-kfac", "spd-kfac", "owner-precondition"}) {
    const RefreshIntervals intervals{2, 4, 40};
    const auto time_of = [&](StepKind step) {
      return simulate(make_plan(model, costs, 2, preset(algorithm), intervals, step), model, costs)
          .iteration.value();
    };
    // A tenth of the steps so far lies between two refreshes.
    int full = 0;
    int factors = 0;
    int last_factors = 0;
    int last_inverses = 0;
    for (int step = 0; step < 40; ++step) {
      const auto waits = [&](int last, int most) { return std::clamp(last / 10, 1, most); };
      if (step > 0 && step - last_factors < waits(last_factors, 2)) continue;
      last_factors = step;
      const bool inverts = step == 0 || step - last_inverses >= waits(last_inverses, 4);
      if (inverts) last_inverses = step;
      ++(inverts ? full : factors);
    }
    EXPECT_GT(factors, 0);
    const double expected =
        (full * time_of(StepKind::kFull) + factors * time_of(StepKind::kFactors) +
         (40 - full - factors) * time_of(StepKind::kGradients)) /
        40;
    const Prediction growing = predict(model, costs, 2, preset(algorithm), intervals);
    EXPECT_NEAR(growing.result.iteration.value(), expected, 1e-9) << algorithm;
    const Prediction most = predict(model, costs, 2, preset(algorithm), {2, 4});
    EXPECT_GT(growing.result.iteration, most.result.iteration);
  }
}

TEST(Predict, SpreadRefreshesTakeAsLongOnAverageAndTheSlowestStepLess) {
  // Inverses of d rows take d seconds: 12, 5 and 4 s, of layers that are parts of their own.
  const ModelSpec model =
      support::tiny_model({{3, 2}, {10, 2}, {2, 2}}, support::layer_times(1, 1, 1, 1));
  const CostModel costs = costs_for(1);
  const RefreshIntervals at_once{2, 6};
  RefreshIntervals spread = at_once;
  spread.spread = true;
  const Prediction whole = predict(model, costs, 1, preset("d-kfac"), at_once);
  const Prediction parts = predict(model, costs, 1, preset("d-kfac"), spread);
  // Passes 6 s, factors 6 s.
  EXPECT_DOUBLE_EQ(whole.full_step.value(), 12 + 12 + 5 + 4);
  EXPECT_DOUBLE_EQ(parts.full_step.value(), 12 + 12);
  EXPECT_DOUBLE_EQ(parts.result.inverse_load[0].value(), 12);
  EXPECT_DOUBLE_EQ(parts.result.iteration.value(), whole.result.iteration.value());
  EXPECT_EQ(parts.intervals, spread);
}

TEST(Predict, SpreadRefreshesOfAllAtOnceAreRefreshes) {
  const ModelSpec model = two_even_layers();
  for (const RefreshIntervals& intervals : {RefreshIntervals{}, RefreshIntervals{3, 3}}) {
    RefreshIntervals spread = intervals;
    spread.spread = true;
    const auto whole = predict(model, costs_for(2), 2, preset("spd-kfac"), intervals);
    const auto parts = predict(model, costs_for(2), 2, preset("spd-kfac"), spread);
    EXPECT_EQ(parts.result.iteration, whole.result.iteration);
    EXPECT_EQ(parts.full_step, whole.full_step);
  }
}

TEST(Predict, GrowingSpreadRefreshesAreAveragedOverTheirParts) {
  // Factors in every step, inverses in 0 to 20, 22 and 24: one part until 19, then two of them.
  const ModelSpec model = two_even_layers();
  const CostModel costs = costs_for(2);
  const RefreshIntervals intervals{1, 1000, 25, true};
  const Plan plan = make_plan(model, costs, 2, preset("spd-kfac"), intervals);
  const auto time_of = [&](const std::vector<bool>& renewed) {
    return simulate(plan, model, costs, {.renewed = renewed}).iteration.value();
  };
  // The second layer is the heavier one.
  const double expected =
      (20 * time_of({}) + 3 * time_of({false, true}) + 2 * time_of({true, false})) / 25;
  const Prediction found = predict(model, costs, 2, preset("spd-kfac"), intervals);
  EXPECT_NEAR(found.result.iteration.value(), expected, 1e-9);
  EXPECT_EQ(found.full_step.value(), time_of({}));
}

TEST(AverageWait, IsWhereARankNeitherComputesNorCommunicates) {
  Prediction p;
  p.full_step = Seconds(10);
  // Busy for 5 + 4 − 1 = 8 s of 10, the other rank for 10: 2 s and none.
  p.utilisation.push_back({Seconds(5), Seconds(4), Seconds(1)});
  p.utilisation.push_back({Seconds(9), Seconds(4), Seconds(3)});
  EXPECT_DOUBLE_EQ(average_wait(p).value(), 1);
  p.utilisation.clear();
  EXPECT_EQ(average_wait(p), Seconds(0));
}

TEST(HiddenShare, IsWhatTheBreakdownDoesNotShow) {
  IterationResult result;
  EXPECT_FALSE(hidden_share(result));
  result.factor_messages = Seconds(0.2);
  result.breakdown[Category::kFactorComm] = Seconds(0.05);
  EXPECT_DOUBLE_EQ(hidden_share(result).value(), 0.75);
  // A wait for the peers can be longer than the message.
  result.breakdown[Category::kFactorComm] = Seconds(0.3);
  EXPECT_EQ(hidden_share(result).value(), 0);
}

TEST(ComparedAlgorithms, AreThereOnceEach) {
  const std::vector<std::string> names = compared_algorithms();
  EXPECT_EQ(names.back(), kAutoAlgorithm);
  EXPECT_THAT(names, testing::Not(testing::Contains("sp-otf")));
  EXPECT_THAT(names, testing::Not(testing::Contains("muon")));
  const std::vector<std::string> all = compared_algorithms(/*all_methods=*/true);
  EXPECT_EQ(all.size(), names.size() + other_methods().size());
  EXPECT_THAT(all, testing::Contains("muon"));
}

TEST(Predict, KeepsTheIntervalsAskedForWhereTheyChangeNothing) {
  const ModelSpec model = two_even_layers();
  const Prediction sgd = predict(model, costs_for(2), 2, preset("sgd"), {10, 100});
  EXPECT_EQ(sgd.intervals, RefreshIntervals({10, 100}));
  EXPECT_EQ(sgd.plan.intervals, RefreshIntervals());
  EXPECT_EQ(sgd.result.iteration, sgd.full_step);
}

}  // namespace
}  // namespace spdkfac
