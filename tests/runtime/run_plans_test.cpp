// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/run_plans.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/lone_rank.h"
#include "spdkfac/base/error.h"
#include "spdkfac/base/log.h"
#include "spdkfac/plan/planner.h"
#include "support/config_error.h"
#include "support/temporary_folder.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

CostModel two_rank_costs() {
  CostModel costs = affine_costs(2, 1e-6, 1e-9, CubicInverse{1e-5, 0, 0, 1e-9});
  costs.compute = ComputeRates{FlopsPerSecond(1e9), FlopsPerSecond(1e9), FlopsPerSecond(1e9)};
  return costs;
}

runtime::CallLog calls_of(const LoneRank& rank, const std::vector<std::size_t>& order) {
  runtime::CallLog calls(rank.layers.size());
  for (const std::size_t layer : order) {
    const at::Tensor input =
        at::zeros({4, rank.layers[layer].weight.size(1)}, test_options(at::kDouble));
    calls.add(layer, kfac::layer_use(input, std::nullopt, false));
  }
  return calls;
}

std::vector<at::Tensor> weights_of(const LoneRank& rank) {
  return {rank.layers[0].weight, rank.layers[1].weight};
}

std::set<StepKind> kinds_made(std::int64_t factor_interval, std::int64_t inverse_interval) {
  LoneRank rank;
  Distribution distribution;
  distribution.communicator = make_local_communicator();
  runtime::RunPlans plans(
      distribution, {.factor_interval = factor_interval, .inverse_interval = inverse_interval},
      test_device(), make_logger({}));
  plans.make_first(rank.layers, calls_of(rank, {0, 1}), weights_of(rank));
  std::set<StepKind> kinds;
  for (const auto& [kind, plan] : plans.followed()) kinds.insert(kind);
  return kinds;
}

TEST(RunPlans, OneRankHasAPlanWithoutMessagesAndOwners) {
  LoneRank rank;
  Distribution distribution;
  distribution.communicator = make_local_communicator();
  runtime::RunPlans plans(distribution, {}, test_device(), make_logger({}));
  EXPECT_FALSE(plans.plan(StepKind::kFull).has_value());
  plans.make_first(rank.layers, calls_of(rank, {1, 0}), weights_of(rank));
  const Plan plan = plans.plan(StepKind::kFull).value();
  EXPECT_EQ(plan.world, 1);
  EXPECT_TRUE(plan.messages.empty());
  // In the order of the calls: A and G of 2x2, then of 3x2.
  const std::vector<FactorPlacement> expected = {
      {0, FactorSide::kA, 2, {}, false},
      {0, FactorSide::kG, 2, {}, false},
      {1, FactorSide::kA, 3, {}, false},
      {1, FactorSide::kG, 2, {}, false},
  };
  EXPECT_EQ(plan.placements, expected);
}

TEST(RunPlans, OneRankMayHaveGroupedConvolutions) {
  const std::vector<TrackedLayer> layers = {{.name = "conv",
                                             .weight = at::zeros({6, 2, 3, 3}),
                                             .bias = at::zeros({6}),
                                             .groups = 2,
                                             .kind = LayerKind::kConv2d}};
  runtime::CallLog calls(1);
  const kfac::ConvGeometry geometry{
      .kernel = {3, 3}, .stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}, .groups = 2};
  calls.add(0, kfac::layer_use(at::zeros({2, 4, 5, 5}), geometry, true));
  const Plan plan =
      runtime::plan_without_messages("model", layers, calls, true, {2, 4}, StepKind::kFull);
  ASSERT_EQ(plan.placements.size(), 2U);
  EXPECT_EQ(plan.intervals.inverses, 4);
  EXPECT_EQ(plan.placements[0].dim, 2 * 9 + 1);
  EXPECT_EQ(plan.placements[1].dim, 6 / 2);
  EXPECT_EQ(plan.placements[0].blocks, 2);
  EXPECT_EQ(plan.placements[1].blocks, 2);
}

TEST(RunPlans, HaveEveryKindOfStepThatTheIntervalsBring) {
  using K = StepKind;
  EXPECT_EQ(kinds_made(1, 1), (std::set{K::kFull}));
  EXPECT_EQ(kinds_made(1, 3), (std::set{K::kFull, K::kFactors}));
  EXPECT_EQ(kinds_made(2, 4), (std::set{K::kFull, K::kFactors, K::kGradients}));
  EXPECT_EQ(kinds_made(2, 2), (std::set{K::kFull, K::kGradients}));
  EXPECT_EQ(kinds_made(4, 1), (std::set{K::kFull}));
  // Factors at 0, 3, 6; inverses at 0, 2, 4, 6: step 3 has factors alone, step 1 neither.
  EXPECT_EQ(kinds_made(3, 2), (std::set{K::kFull, K::kFactors, K::kGradients}));
}

TEST(RunPlans, MayBeMadeAfterAFailure) {
  LoneRank rank;
  bool fail = true;
  Distribution distribution;
  distribution.communicator = std::make_shared<comm::MirroredPeers>(0, 2);
  distribution.plans =
      CustomPlanner{[&](const ModelSpec& model, const RefreshIntervals& intervals, StepKind step) {
        if (std::exchange(fail, false)) throw ConfigError("no cluster file");
        return make_plan(model, two_rank_costs(), 2, preset("spd-kfac"), intervals, step);
      }};
  runtime::RunPlans plans(distribution, {}, test_device(), make_logger({}));
  const runtime::CallLog calls = calls_of(rank, {0, 1});
  EXPECT_THROW(plans.make_first(rank.layers, calls, weights_of(rank)), ConfigError);
  plans.make_first(rank.layers, calls, weights_of(rank));
  EXPECT_EQ(plans.model().parameters, 3 * 2 + 2 * 2);
  EXPECT_EQ(plans.plan(StepKind::kFull)->world, 2);
}

TEST(RunPlans, NameAllLayersWhoseCallsAreHidden) {
  // 11 layers have a gradient, but only the first was seen; the last has none.
  std::vector<TrackedLayer> layers;
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 12; ++i) {
    weights.push_back(torch::ones({2, 2}, at::kDouble).requires_grad_());
    if (i < 11) weights.back().mutable_grad() = torch::ones({2, 2}, at::kDouble);
    layers.push_back({.name = fmt::format("l{}", i), .weight = weights.back(), .bias = {}});
  }
  runtime::CallLog calls(layers.size());
  calls.add(0, kfac::layer_use(at::zeros({4, 2}, at::kDouble), std::nullopt, false));
  Distribution distribution;
  distribution.communicator = std::make_shared<comm::MirroredPeers>(0, 2);
  distribution.plans = PlanForCosts{two_rank_costs(), preset("spd-kfac")};
  runtime::RunPlans plans(distribution, {}, at::kCPU, make_logger({}));
  expect_config_error(
      [&] { plans.make_first(layers, calls, weights); },
      "layers that have a gradient: l1, l2, l3, l4, l5, l6, l7, l8 and 2 more; call them on");
}

// The plans of a source on two mirrored ranks.
Plan plan_of(const PlanSource& source, const KfacOptions& options = {},
             StepKind kind = StepKind::kFull) {
  LoneRank rank;
  Distribution distribution;
  distribution.communicator = std::make_shared<comm::MirroredPeers>(0, 2);
  distribution.plans = source;
  runtime::RunPlans plans(distribution, options, test_device(), make_logger({}));
  plans.make_first(rank.layers, calls_of(rank, {0, 1}), weights_of(rank));
  return plans.plan(kind).value();
}

TEST(PlanSource, KnownCostsArePlannedForTheIntervalsOfTheRun) {
  const Plan plan = plan_of(PlanForCosts{two_rank_costs(), preset("auto")},
                            {.factor_interval = 2, .inverse_interval = 6});
  EXPECT_EQ(plan.intervals, (RefreshIntervals{2, 6}));
}

TEST(PlanSource, CostsAndPlansForOtherRanksAreRefused) {
  CostModel costs = two_rank_costs();
  costs.world = 8;
  expect_config_error([&] { plan_of(PlanForCosts{costs}); }, "is for 8 ranks, this run has 2");
  Plan plan;
  plan.world = 4;
  expect_config_error([&] { plan_of(FollowPlan{plan, "my.json"}); }, "my.json: is for 4 ranks");
}

TEST(PlanSource, AGivenPlanIsFollowed) {
  const Plan made = plan_of(PlanForCosts{two_rank_costs(), preset("mpd-kfac")});
  EXPECT_EQ(plan_of(FollowPlan{made}).digest(), made.digest());
}

// Averages stay with the owners of the full step, whatever other costs would say.
TEST(PlanSource, StepsBetweenRefreshesKeepTheOwnersOfAGivenPlan) {
  PlanOptions options = preset("owner-reduce");
  options.nct_below = 0;
  const KfacOptions kfac{.factor_interval = 2, .inverse_interval = 4};
  const Plan made = plan_of(PlanForCosts{two_rank_costs(), options}, kfac);
  const Plan swapped = with_ranks_swapped(made, 0, 1);
  ASSERT_NE(swapped.placements, made.placements);
  for (const StepKind kind : {StepKind::kFactors, StepKind::kGradients}) {
    const Plan between = plan_of(FollowPlan{swapped}, kfac, kind);
    EXPECT_EQ(between.step, kind);
    EXPECT_EQ(between.placements, swapped.placements);
  }
}

TEST(PlanSource, AGivenPlanIsOfAFullStep) {
  Plan plan = plan_of(PlanForCosts{two_rank_costs(), preset("spd-kfac")});
  plan.step = StepKind::kGradients;
  expect_config_error(
      [&] {
        plan_of(FollowPlan{plan, "my.json"});
      },
      "my.json: is for steps of kind gradients");
}

TEST(PlanSource, SaysWhetherThereAreFactors) {
  EXPECT_TRUE(second_order(MeasureHere{}));
  EXPECT_FALSE(second_order(MeasureHere{.options = preset("sgd")}));
  EXPECT_FALSE(second_order(PlanForCosts{two_rank_costs(), preset("sgd")}));
  EXPECT_FALSE(second_order(CustomPlanner{nullptr, false}));
}

// The default of several ranks: their own costs, which are kept for the next run.
TEST(PlanSource, MeasuresThisMachineOnceByDefault) {
  EXPECT_TRUE(std::holds_alternative<MeasureHere>(Distribution{}.plans));
  const TemporaryFolder folder;
  const Plan plan = plan_of(MeasureHere{.cache_folder = folder.path()});
  EXPECT_EQ(plan.algorithm, "spd-kfac");
  EXPECT_EQ(plan.world, 2);
  EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace spdkfac
