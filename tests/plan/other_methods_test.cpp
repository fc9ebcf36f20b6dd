// SPDX-License-Identifier: Apache-2.0
// Methods and exchanges that are planned and simulated but not trained with.
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/plan/method_costs.h"
#include "spdkfac/plan/placement_planner.h"
#include "spdkfac/plan/plan_file.h"
#include "spdkfac/plan/planner.h"
#include "support/config_error.h"
#include "support/models.h"
#include "support/random.h"

namespace spdkfac {
namespace {

using support::affine_costs;
using support::config_error;
using support::Random;
using support::tiny_model;
using ::testing::HasSubstr;

CostModel with_rates(int world) {
  CostModel costs = affine_costs(world, 1, 0.5, CubicInverse{.c1 = 1});
  costs.compute = ComputeRates{FlopsPerSecond(10), FlopsPerSecond(10), FlopsPerSecond(10)};
  return costs;
}

TEST(WorkerGrid, IsTheLargestNumberOfWorkersThatDividesTheRanks) {
  const auto workers = [](double share, int world) {
    PlanOptions options;
    options.gradient_workers = share;
    const WorkerGrid grid = worker_grid(options, world);
    EXPECT_EQ(grid.workers * grid.columns, world);
    return grid.workers;
  };
  EXPECT_EQ(workers(0, 64), 1);
  EXPECT_EQ(workers(1.0 / 64, 64), 1);
  EXPECT_EQ(workers(0.5, 64), 32);
  EXPECT_EQ(workers(1, 64), 64);
  EXPECT_EQ(workers(1.0 / 3, 9), 3);
  EXPECT_EQ(workers(0.5, 3), 1);   // at most 1.5
  EXPECT_EQ(workers(0.5, 9), 3);   // at most 4.5
  EXPECT_EQ(workers(0.9, 10), 5);  // at most 9
  EXPECT_EQ(worker_grid(preset("spd-kfac"), 6).columns, 1);
  EXPECT_EQ(worker_grid(preset("shampoo"), 6).columns, 6);
}

// Of four ranks in two columns, {0, 2} and {1, 3}. 5 goes to the first column, rank 0; 4 to the
// second, rank 1; 3 to the second (4 < 5), where rank 3 has nothing; 2 to the first (5 < 7), where
// rank 2 has nothing.
TEST(PlaceHeaviestFirst, InColumnsFillsTheLightestColumnAndInItTheLightestRank) {
  const std::vector<plan::PlacementItem> items = {{2}, {5}, {3}, {4}};
  EXPECT_EQ(plan::place_heaviest_first(items, 4, 2), plan::Owners({2, 0, 3, 1}));
}

TEST(PlaceHeaviestFirst, InOneColumnOrOneForEachRankIsTheSame) {
  Random random(3);
  for (int i = 0; i < 50; ++i) {
    std::vector<plan::PlacementItem> items;
    for (int n = 0; n < 20; ++n) items.push_back({random.real(0, 1), random.integer(0, 4) == 0});
    EXPECT_EQ(plan::place_heaviest_first(items, 6, 1), plan::place_heaviest_first(items, 6, 6));
  }
}

// d_A 3, d_G 2, so 6 elements, at 10 flops a second.
TEST(MethodCosts, AreTheDocumentedArithmetic) {
  const ModelSpec model = tiny_model({{3, 2}}, support::layer_times(1, 2, 7, 8));
  const auto costs = [&](Method method) {
    return layer_costs(model, with_rates(2), {.method = method})[0];
  };
  for (const Method method : {Method::kShampoo, Method::kSoap, Method::kMuon}) {
    EXPECT_EQ(costs(method).forward, Seconds(1));
    EXPECT_EQ(costs(method).backward, Seconds(2));
  }
  // Statistics: 2·6·3 = 36 and 2·6·2 = 24 flops. Two products: 2·6·(3+2) = 60.
  for (const Method method : {Method::kShampoo, Method::kSoap}) {
    EXPECT_DOUBLE_EQ(costs(method).factor_a.value(), 3.6);
    EXPECT_DOUBLE_EQ(costs(method).factor_g.value(), 2.4);
  }
  EXPECT_DOUBLE_EQ(costs(Method::kShampoo).precondition.value(), 6);
  EXPECT_DOUBLE_EQ(costs(Method::kSoap).precondition.value(), 18);  // gradient, momentum, update
  // Five times X·Xᵀ (2·3·2² = 24), its square (2·2³ = 16) and the product with X (24): 320.
  EXPECT_DOUBLE_EQ(costs(Method::kMuon).precondition.value(), 32);
  EXPECT_EQ(costs(Method::kMuon).factor_a + costs(Method::kMuon).factor_g, Seconds(0));
  // An inversion takes 3 and 2 s, and d³ flops. A root takes 9 d³ + 2 d³; a product and a QR
  // decomposition 2 d³ + 8/3 d³.
  EXPECT_DOUBLE_EQ(costs(Method::kShampoo).inverse_a.value(), 33);
  EXPECT_DOUBLE_EQ(costs(Method::kShampoo).inverse_g.value(), 22);
  EXPECT_DOUBLE_EQ(costs(Method::kSoap).inverse_a.value(), 14);
  EXPECT_DOUBLE_EQ(costs(Method::kSoap).inverse_g.value(), 28.0 / 3);
  EXPECT_EQ(costs(Method::kMuon).inverse_a, Seconds(0));
}

// The same model: inversions of 3 and 2 s, 60 flops of one product on both sides. Eigenvectors take
// 4 inversions, turned moments half of one more.
TEST(SolverCosts, AreTheDocumentedArithmetic) {
  const ModelSpec model = tiny_model({{3, 2}}, support::layer_times(1, 2, 7, 8));
  const auto costs = [&](Solver solver) {
    return layer_costs(model, with_rates(2), {.solver = solver})[0];
  };
  EXPECT_EQ(costs(Solver::kInverse).inverse_a, Seconds(3));
  EXPECT_EQ(costs(Solver::kEigen).inverse_a, Seconds(12));
  EXPECT_EQ(costs(Solver::kEigen).inverse_g, Seconds(8));
  EXPECT_DOUBLE_EQ(costs(Solver::kAdam).inverse_a.value(), 13.5);
  EXPECT_DOUBLE_EQ(costs(Solver::kEkfac).inverse_g.value(), 9);
  EXPECT_EQ(costs(Solver::kInverse).precondition, Seconds(6));
  EXPECT_EQ(costs(Solver::kEigen).precondition, Seconds(12));
  EXPECT_EQ(costs(Solver::kAdam).precondition, Seconds(18));
  // What was measured with a layer is that of its own solver.
  ModelSpec measured = model;
  measured.layers[0].times->inverse_a = Seconds(5);
  EXPECT_EQ(layer_costs(measured, with_rates(2), {.solver = Solver::kEigen})[0].inverse_a,
            Seconds(5));
}

// Two layers of d_A 3 and d_G 2 and 4 and 1: eigenvectors travel whole, with their eigenvalues;
// those of one row are known.
TEST(SolverPlans, SendEigenvectorsAndSayWhichSolver) {
  const ModelSpec model = tiny_model({{3, 2}, {4, 1}}, support::layer_times(1, 2, 7, 8));
  PlanOptions options = preset("mpd-kfac");
  options.solver = Solver::kAdam;
  const Plan plan = make_plan(model, with_rates(2), 2, options);
  std::map<std::pair<int, FactorSide>, std::int64_t> sent;
  for (const ResultBroadcast& one : result_broadcasts(plan, model)) {
    const FactorPlacement& factor = plan.placements[one.last];
    sent[{factor.layer, factor.side}] = one.elements;
  }
  EXPECT_EQ(sent, (std::map<std::pair<int, FactorSide>, std::int64_t>{{{0, FactorSide::kA}, 12},
                                                                      {{0, FactorSide::kG}, 6},
                                                                      {{1, FactorSide::kA}, 20},
                                                                      {{1, FactorSide::kG}, 1}}));
  const Json file = to_json(plan);
  EXPECT_EQ(file.at("options").at("solver"), "adam");
  options.solver = Solver::kInverse;
  EXPECT_FALSE(
      to_json(make_plan(model, with_rates(2), 2, options)).at("options").contains("solver"));
  options = preset("sgd");
  options.solver = Solver::kEigen;
  EXPECT_THAT(config_error([&] { validate(options); }), HasSubstr("solver=eigen makes no sense"));
}

TEST(MethodCosts, NeedARateOrAMeasuredProduct) {
  ModelSpec model = tiny_model({{3, 2}}, support::layer_times(1, 2, 7, 8));
  CostModel costs = affine_costs(2, 1, 0.5);
  EXPECT_THAT(config_error([&] { layer_costs(model, costs, {.method = Method::kMuon}); }),
              HasSubstr("the time that method=muon takes for layer l0 is unknown"));
  // 60 flops of K-FAC's products were measured as 30 s: two flops a second.
  model.layers[0].times->precondition = Seconds(30);
  EXPECT_DOUBLE_EQ(layer_costs(model, costs, {.method = Method::kMuon})[0].precondition.value(),
                   160);
}

TEST(BroadcastWithin, ScalesLikeAClusterOfAsManyRanks) {
  CostModel costs = affine_costs(8, 3, 0.7);
  costs.broadcast = CollectiveCost(Seconds(3), Seconds(0.7), Seconds(0.25));
  for (const int ranks : {1, 2, 4, 8}) {
    EXPECT_DOUBLE_EQ(costs.broadcast_within(ranks).time(10, 2).value(),
                     costs.for_world(ranks).broadcast.time(10, 2).value());
  }
  EXPECT_EQ(costs.broadcast_within(1).time(10, 2), Seconds(0));
}

TEST(OtherMethods, PlansFitTheirModelsAndSurviveTheirFiles) {
  Random random(17);
  for (int i = 0; i < 10; ++i) {
    const ModelSpec model =
        support::random_model(random, static_cast<std::size_t>(random.integer(1, 12)));
    for (const AlgorithmInfo& info : other_methods()) {
      for (const int world : {1, 2, 3, 6, 64}) {
        for (const StepKind step : {StepKind::kFull, StepKind::kFactors, StepKind::kGradients}) {
          SCOPED_TRACE(info.name + " on " + std::to_string(world));
          const Plan plan = make_plan(model, with_rates(4), world, info.options, {}, step);
          EXPECT_NO_THROW(validate_against(plan, model, "test"));
          const Plan read = parse_plan(parse_json(to_json(plan).dump(), "text"), "plan.json");
          EXPECT_EQ(read.options, plan.options);
          EXPECT_EQ(read.digest(), plan.digest());
        }
      }
    }
  }
}

// Where factors are local, nothing but gradients travels before the inversions, and one rank has
// both factors of a layer.
TEST(OtherMethods, SendNoLocalFactors) {
  Random random(18);
  const ModelSpec model = support::random_model(random, 9);
  for (const AlgorithmInfo& info : other_methods()) {
    const Plan plan = make_plan(model, with_rates(6), 6, info.options);
    const bool local = plan.options.factor_reduce == FactorReduce::kLocal;
    std::map<TensorKind, int> sent;
    for (const Message& message : plan.messages) {
      for (const Member& member : message.members) ++sent[member.kind];
      EXPECT_EQ(message.route.op, CollectiveOp::kAllReduce);
    }
    EXPECT_EQ(sent[TensorKind::kGradient], 9) << info.name;
    EXPECT_EQ(sent[TensorKind::kFactorA], local ? 0 : 9) << info.name;
    EXPECT_EQ(sent[TensorKind::kFactorG], local ? 0 : 9) << info.name;
    for (std::size_t i = 0; i < plan.placements.size(); i += 2) {
      EXPECT_EQ(plan.placements[i].layer, plan.placements[i + 1].layer) << info.name;
      EXPECT_EQ(plan.placements[i].owner, plan.placements[i + 1].owner) << info.name;
      EXPECT_TRUE(plan.placements[i].owner.has_value()) << info.name;
    }
  }
}

struct BadOptions {
  const char* name;
  const char* start;
  void (*change)(PlanOptions&);
  const char* expected;
};

TEST(OtherMethods, CombinationsWithoutSenseAreNamed) {
  const std::vector<BadOptions> cases = {
      {"share", "kaisa-mem", [](PlanOptions& o) { o.gradient_workers = 1.5; },
       "gradient_workers=1.5 is out of range; use 0 (the owner alone) to 1"},
      {"exchange", "kaisa-mem", [](PlanOptions& o) { o.exchange = Exchange::kGradient; },
       "gradient_workers=0 makes no sense with exchange=gradient"},
      {"replicated", "kaisa-mem", [](PlanOptions& o) { o.placement = PlacementKind::kReplicated; },
       "gradient_workers=0 makes no sense with placement=replicated"},
      {"balanced", "dp-kfac", [](PlanOptions& o) { o.placement = PlacementKind::kBalanced; },
       "factor_reduce=local makes no sense with placement=balanced"},
      {"limit", "dp-kfac",
       [](PlanOptions& o) {
         o.placement = PlacementKind::kLpt;
         o.nct_below = 7;
       },
       "factor_reduce=local makes no sense with nct_below=7"},
      {"reduce", "shampoo", [](PlanOptions& o) { o.factor_reduce = FactorReduce::kOwner; },
       "factor_reduce=owner makes no sense with method=shampoo"},
      {"schedule", "muon", [](PlanOptions& o) { o.factor_schedule = FactorSchedule::kPipelined; },
       "factor_schedule=pipelined makes no sense with method=muon"},
      {"sgd", "sgd", [](PlanOptions& o) { o.method = Method::kSoap; },
       "factor_schedule=none makes no sense with method=soap"}};
  for (const BadOptions& one : cases) {
    SCOPED_TRACE(one.name);
    PlanOptions options = preset(one.start);
    EXPECT_NO_THROW(validate(options));
    one.change(options);
    EXPECT_THAT(config_error([&] { validate(options); }), HasSubstr(one.expected));
  }
}

TEST(OtherMethods, PlansWithOwnersThatDoNotFitAreRejected) {
  const ModelSpec model = tiny_model({{3, 2}, {2, 1}});
  Plan plan = make_plan(model, with_rates(2), 2, preset("kaisa-hybrid"));
  plan.placements[0].owner = 1 - *plan.placements[1].owner;
  EXPECT_THAT(config_error([&] { validate_against(plan, model, "p"); }),
              HasSubstr("have different owners, but one rank needs both"));
  plan = make_plan(model, with_rates(2), 2, preset("dp-kfac"));
  plan.placements[0].owner = plan.placements[1].owner = std::nullopt;
  EXPECT_THAT(config_error([&] { validate_against(plan, model, "p"); }),
              HasSubstr("layer 0 has no owner, but its factors are local to one"));
}

TEST(RequireTrainable, NamesWhatIsForForecastsOnly) {
  for (const AlgorithmInfo& info : named_algorithms())
    EXPECT_NO_THROW(require_trainable(info.options));
  const std::map<std::string, std::string> what = {{"kaisa-mem", "gradient_workers=0"},
                                                   {"kaisa-hybrid", "gradient_workers=0.5"},
                                                   {"kaisa-comm", "gradient_workers=1"},
                                                   {"dp-kfac", "factor_reduce=local"},
                                                   {"shampoo", "method=shampoo"},
                                                   {"soap", "method=soap"},
                                                   {"muon", "method=muon"}};
  ASSERT_EQ(other_methods().size(), what.size());
  for (const AlgorithmInfo& info : other_methods()) {
    EXPECT_THAT(config_error([&] { require_trainable(info.options); }),
                HasSubstr("algorithm " + info.name + " has " + what.at(info.name) +
                          ", which is for plans and forecasts only"));
  }
  PlanOptions gathers = preset("owner-blocks");
  gathers.exchange = Exchange::kGather;
  EXPECT_THAT(config_error([&] { require_trainable(gathers); }), HasSubstr("exchange=gather"));
}

}  // namespace
}  // namespace spdkfac
