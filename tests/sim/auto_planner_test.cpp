// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/auto_planner.h"

#include <map>

#include <gtest/gtest.h>

#include "sim/random_cases.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/simulator.h"
#include "support/models.h"
#include "support/random.h"

namespace spdkfac {
namespace {

using support::affine_costs;
using support::layer_times;
using support::Random;
using support::random_cluster;
using support::random_model;
using support::second_order_presets;
using support::tiny_model;

// Steps of each kind in one cycle; kinds that do not come are left out.
std::map<StepKind, std::int64_t> cycle(std::int64_t factor, std::int64_t inverse) {
  std::map<StepKind, std::int64_t> counts;
  const ModelSpec model = tiny_model({{1, 1}});
  for (const StepShare& share : refresh_cycle(model, preset("spd-kfac"), {factor, inverse})) {
    if (share.count != 0) counts[share.step] += share.count;
  }
  return counts;
}

using Counts = std::map<StepKind, std::int64_t>;

TEST(RefreshCycle, IsOneFullStepWhenEverythingIsRefreshedEachTime) {
  EXPECT_EQ(cycle(1, 1), Counts({{StepKind::kFull, 1}}));
}

TEST(RefreshCycle, CountsStepsOfEachKind) {
  // Of 6 steps the first is full; factors alone in steps 2 and 4; gradients in 1, 3 and 5.
  EXPECT_EQ(cycle(2, 6),
            Counts({{StepKind::kFull, 1}, {StepKind::kFactors, 2}, {StepKind::kGradients, 3}}));
  // Of 100 steps 10 have factors, one of them inverses as well.
  EXPECT_EQ(cycle(10, 100),
            Counts({{StepKind::kFull, 1}, {StepKind::kFactors, 9}, {StepKind::kGradients, 90}}));
}

TEST(RefreshCycle, HasNoKindThatNeverComes) {
  EXPECT_EQ(cycle(1, 4), Counts({{StepKind::kFull, 1}, {StepKind::kFactors, 3}}));
  EXPECT_EQ(cycle(4, 4), Counts({{StepKind::kFull, 1}, {StepKind::kGradients, 3}}));
}

TEST(RefreshCycle, OfFirstOrderTrainingIsOneStep) {
  std::int64_t steps = 0;
  const ModelSpec model = tiny_model({{1, 1}});
  for (const StepShare& share : refresh_cycle(model, preset("sgd"), {10, 100})) {
    steps += share.count;
  }
  EXPECT_EQ(steps, 1);
}

TEST(RefreshCycle, OfASpreadRefreshHasAFullStepForEachPart) {
  // Factors in 4 of 12 steps, three layers: one each, and in the fourth factors alone.
  const ModelSpec model = tiny_model({{2, 2}, {4, 4}, {3, 3}});
  const RefreshIntervals intervals{.factors = 3, .inverses = 12, .spread = true};
  const std::vector<StepShare> cycle = refresh_cycle(model, preset("spd-kfac"), intervals);
  ASSERT_EQ(cycle.size(), 5U);
  EXPECT_EQ(cycle[0].renewed, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(cycle[1].renewed, (std::vector<bool>{false, false, true}));
  EXPECT_EQ(cycle[2].renewed, (std::vector<bool>{true, false, false}));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(cycle[i].step, i < 3 ? StepKind::kFull : StepKind::kFactors);
    EXPECT_EQ(cycle[i].count, 1);
  }
  EXPECT_EQ(cycle[4].step, StepKind::kGradients);
  EXPECT_EQ(cycle[4].count, 8);
}

TEST(AverageIteration, WeighsTheStepsOfACycle) {
  // One layer, all times 1 s; collectives 1 s; inverses 4 s on every worker, preconditioning free.
  const ModelSpec model = tiny_model({{1, 1}}, layer_times(1, 1, 1, 1));
  const CostModel costs = affine_costs(2, 1, 0, CubicInverse{4, 0, 0, 0});
  // Gradients: F_0, B_0, 1 s of communication: 3. Factors: then A_0 and G_0, messages A and G of
  // 1 s each: 7. Full: both inverses, 15. (1·15 + 2·7 + 3·3)/6 = 38/6.
  EXPECT_DOUBLE_EQ(average_iteration(model, costs, 2, preset("d-kfac"), {2, 6}).value(), 38.0 / 6);
  EXPECT_EQ(average_iteration(model, costs, 2, preset("d-kfac"), {}), Seconds(15));
}

TEST(AverageIteration, IsTheWeightedMeanOfThreeSimulations) {
  Random random(21);
  for (int i = 0; i < 20; ++i) {
    const ModelSpec model = random_model(random, 4);
    const CostModel costs = random_cluster(random, 4);
    for (const PlanOptions& options : second_order_presets()) {
      const auto iteration = [&](StepKind step) {
        const Plan plan = make_plan(model, costs, 4, options, {2, 6}, step);
        return simulate(plan, model, costs).iteration.value();
      };
      const double expected = (iteration(StepKind::kFull) + 2 * iteration(StepKind::kFactors) +
                               3 * iteration(StepKind::kGradients)) /
                              6;
      EXPECT_NEAR(average_iteration(model, costs, 4, options, {2, 6}).value(), expected,
                  1e-12 * expected)
          << options.algorithm;
    }
  }
}

constexpr RefreshIntervals kIntervals[] = {{1, 1}, {1, 5}, {2, 6}, {5, 5}, {10, 100}};

TEST(BestOptions, AreNeverPredictedSlowerThanANamedAlgorithm) {
  Random random(22);
  for (int i = 0; i < 500; ++i) {
    // More small models than large ones: 500 cases take some seconds without optimisation.
    const std::int64_t most = random.integer(1, 12);
    const auto layers = static_cast<std::size_t>(random.integer(1, most));
    const ModelSpec model = random_model(random, layers);
    const int world = static_cast<int>(random.integer(1, 16));
    const CostModel costs = random_cluster(random, static_cast<int>(random.integer(2, 16)));
    const RefreshIntervals intervals = kIntervals[random.integer(0, 4)];

    const PlanOptions best = best_options(model, costs, world, intervals);

    const Seconds chosen = average_iteration(model, costs, world, best, intervals);
    for (const PlanOptions& named : second_order_presets()) {
      EXPECT_LE(chosen, average_iteration(model, costs, world, named, intervals))
          << "case " << i << ": " << layers << " layers, " << world << " workers, intervals "
          << intervals.factors << '/' << intervals.inverses << ", " << named.algorithm;
    }
  }
}

TEST(MakeBestPlan, OfAutoIsAValidPlanCalledAuto) {
  Random random(23);
  for (int i = 0; i < 20; ++i) {
    const ModelSpec model = random_model(random, static_cast<std::size_t>(random.integer(1, 8)));
    const int world = static_cast<int>(random.integer(1, 8));
    const CostModel costs = random_cluster(random, 8);
    for (const StepKind step : {StepKind::kFull, StepKind::kFactors, StepKind::kGradients}) {
      const Plan plan = make_best_plan(model, costs, world, preset(kAutoAlgorithm), {2, 6}, step);
      EXPECT_EQ(plan.algorithm, "auto");
      EXPECT_EQ(plan.intervals, RefreshIntervals({2, 6}));
      EXPECT_EQ(plan.world, world);
      EXPECT_EQ(plan.step, step);
      EXPECT_NO_THROW(validate_against(plan, model, "test"));
    }
  }
}

TEST(MakeBestPlan, OfAutoSendsInversesWhereTheyAreRare) {
  // Inversions of 100 s are shared out between two ranks. The owner may send V in every step or
  // inverses in every thousandth: messages take 1/8 s an element, so inverses win.
  const ModelSpec model = tiny_model({{2, 2}}, layer_times(1, 1, 1, 1));
  const CostModel costs = affine_costs(2, 0, 0.125, CubicInverse{100, 0, 0, 0});
  const Plan rare = make_best_plan(model, costs, 2, preset(kAutoAlgorithm), {1000, 1000});
  for (const FactorPlacement& factor : rare.placements) EXPECT_FALSE(factor.sends_gradient);
}

TEST(MakeBestPlan, OfAutoRunsInTheTimeOfTheBestOptions) {
  Random random(24);
  for (int i = 0; i < 50; ++i) {
    const ModelSpec model = random_model(random, 5);
    const CostModel costs = random_cluster(random, 4);
    const Plan plan = make_best_plan(model, costs, 4, preset(kAutoAlgorithm), {});
    EXPECT_EQ(simulate(plan, model, costs).iteration,
              average_iteration(model, costs, 4, best_options(model, costs, 4, {}), {}));
  }
}

TEST(MakeBestPlan, OfAnyOtherAlgorithmIsMakePlan) {
  Random random(25);
  const ModelSpec model = random_model(random, 5);
  const CostModel costs = random_cluster(random, 4);
  for (const AlgorithmInfo& info : named_algorithms()) {
    EXPECT_EQ(make_best_plan(model, costs, 4, info.options, {2, 6}).digest(),
              make_plan(model, costs, 4, info.options, {2, 6}).digest())
        << info.name;
  }
}

}  // namespace
}  // namespace spdkfac
