// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/planner.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/error.h"
#include "spdkfac/plan/compute_stream.h"
#include "spdkfac/plan/plan_options_file.h"
#include "support/config_error.h"
#include "support/models.h"
#include "support/random.h"

namespace spdkfac {
namespace {

using support::affine_costs;
using support::config_error;
using support::layer_times;
using support::Random;
using support::tiny_model;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What design section 5 says of each name.
struct Preset {
  const char* name;
  FactorSchedule schedule;
  Fusion fusion;
  PlacementKind placement;
  FactorReduce reduce = FactorReduce::kAllReduce;
  Exchange exchange = Exchange::kInverse;
};

constexpr auto kBulk = FactorSchedule::kBulk;
constexpr auto kPipelined = FactorSchedule::kPipelined;
constexpr auto kReplicated = PlacementKind::kReplicated;
constexpr auto kBalanced = PlacementKind::kBalanced;

const std::vector<Preset>& documented_presets() {
  static const std::vector<Preset> presets = {
      {"sgd", FactorSchedule::kNone, Fusion::kThreshold, kReplicated},
      {"kfac", kBulk, Fusion::kThreshold, kReplicated},
      {"d-kfac", kBulk, Fusion::kThreshold, kReplicated},
      {"mpd-kfac", kBulk, Fusion::kThreshold, PlacementKind::kSequential},
      {"spd-kfac", kPipelined, Fusion::kGreedy, kBalanced},
      {"pipe", kPipelined, Fusion::kGreedy, kReplicated},
      {"lbp", kBulk, Fusion::kThreshold, kBalanced},
      {"naive", FactorSchedule::kNaive, Fusion::kThreshold, kBalanced},
      {"lw-none", kPipelined, Fusion::kNone, kBalanced},
      {"lw-threshold", kPipelined, Fusion::kThreshold, kBalanced},
      {"sp-otf", kPipelined, Fusion::kGreedy, kBalanced},
      {"optimal-fusion", kPipelined, Fusion::kOptimal, kBalanced},
      {"owner-reduce", kPipelined, Fusion::kGreedy, kBalanced, FactorReduce::kOwner},
      {"owner-precondition", kPipelined, Fusion::kOptimal, PlacementKind::kLpt,
       FactorReduce::kOwner, Exchange::kGradient},
      {"owner-blocks", kPipelined, Fusion::kOptimal, PlacementKind::kBlocks, FactorReduce::kOwner,
       Exchange::kGradient}};
  return presets;
}

TEST(Preset, HasTheDocumentedValuesOfEveryName) {
  EXPECT_EQ(named_algorithms().size(), documented_presets().size());
  for (const Preset& expected : documented_presets()) {
    SCOPED_TRACE(expected.name);
    const PlanOptions options = preset(expected.name);
    EXPECT_EQ(options.algorithm, expected.name);
    EXPECT_EQ(options.factor_schedule, expected.schedule);
    EXPECT_EQ(options.second_order(), expected.schedule != FactorSchedule::kNone);
    EXPECT_EQ(options.fusion, expected.fusion);
    EXPECT_EQ(options.placement, expected.placement);
    EXPECT_EQ(options.balance_by, BalanceBy::kDimension);  // as printed in the paper
    EXPECT_EQ(options.factor_reduce, expected.reduce);
    EXPECT_EQ(options.exchange, expected.exchange);
    EXPECT_EQ(options.threshold_bytes.value(), 64 * 1024 * 1024);
    EXPECT_FALSE(options.nct_below.has_value());
    EXPECT_NO_THROW(validate(options));
  }
}

TEST(Preset, UnknownNameIsAnErrorThatListsTheKnown) {
  const std::string message = config_error([] { preset("adam"); });
  EXPECT_THAT(message, HasSubstr("adam"));
  for (const Preset& known : documented_presets()) EXPECT_THAT(message, HasSubstr(known.name));
  EXPECT_THAT(message, HasSubstr(kAutoAlgorithm));
}

TEST(Preset, AutoHasOptionsOfItsOwn) { EXPECT_EQ(preset("auto").algorithm, "auto"); }

// Which of the options' fields a message names.
std::vector<std::string> named_fields(const std::string& message) {
  std::vector<std::string> found;
  for (const char* field : {"factor_schedule", "fusion", "placement", "balance_by", "factor_reduce",
                            "exchange", "nct_below", "owners", "threshold_bytes"}) {
    if (message.find(field) != std::string::npos) found.emplace_back(field);
  }
  return found;
}

TEST(PlanOptions, ConflictsNameBothFields) {
  PlanOptions options = preset("d-kfac");
  options.factor_reduce = FactorReduce::kOwner;  // nobody owns anything
  EXPECT_THAT(config_error([&] { validate(options); }),
              AllOf(HasSubstr("factor_reduce"), HasSubstr("placement")));
  options = preset("d-kfac");
  options.exchange = Exchange::kGradient;
  EXPECT_THAT(config_error([&] { validate(options); }),
              AllOf(HasSubstr("exchange"), HasSubstr("placement")));
  options = preset("spd-kfac");
  options.owners = 2;
  EXPECT_THAT(config_error([&] { validate(options); }),
              AllOf(HasSubstr("owners"), HasSubstr("placement")));
}

TEST(RefreshIntervals, InversesOfFactorsThatAreNotFreshAreAConflict) {
  EXPECT_NO_THROW(validate(RefreshIntervals{2, 4}));
  EXPECT_THAT(config_error([] {
                validate(RefreshIntervals{2, 3});
              }),
              AllOf(HasSubstr("factor_interval=2"), HasSubstr("inverse_interval=3")));
}

TEST(RefreshIntervals, AreAtLeastOne) {
  EXPECT_THAT(config_error([] {
                validate(RefreshIntervals{0, 1});
              }),
              HasSubstr("factor_interval=0"));
  EXPECT_THAT(config_error([] {
                validate(RefreshIntervals{1, kMaxInterval + 1});
              }),
              HasSubstr("inverse_interval=1000001"));
}

TEST(MakePlan, KeepsTheIntervalsOfSecondOrderTrainingOnly) {
  const ModelSpec model = tiny_model({{3, 2}}, layer_times(1, 2, 1, 1));
  const CostModel costs = affine_costs(2, 1, 1);
  EXPECT_EQ(make_plan(model, costs, 2, preset("d-kfac"), {2, 6}).intervals,
            RefreshIntervals({2, 6}));
  // Without factors there is nothing to refresh, whatever the run's options say.
  EXPECT_EQ(make_plan(model, costs, 2, preset("sgd"), {2, 5}).intervals, RefreshIntervals());
}

TEST(MakePlan, CheapestExchangeDependsOnHowOftenInversesAreRefreshed) {
  // d_A = d_G = 3: both inverses have 12 elements, the gradient 9; messages cost 1 s an element.
  const ModelSpec model = tiny_model({{3, 3}});
  const CostModel costs = affine_costs(2, 0, 1, CubicInverse{100, 0, 0, 0});
  PlanOptions options = preset("owner-precondition");
  options.exchange = Exchange::kCheapest;
  const auto sends_gradient = [&](std::int64_t interval) {
    return make_plan(model, costs, 2, options, {1, interval}).placements.front().sends_gradient;
  };
  EXPECT_TRUE(sends_gradient(1));   // 9 ≤ 12
  EXPECT_FALSE(sends_gradient(2));  // 9 > 12/2
}

// How often each tensor travels.
std::map<std::pair<TensorKind, int>, int> journeys(const Plan& plan) {
  std::map<std::pair<TensorKind, int>, int> count;
  for (const Message& message : plan.messages) {
    for (const Member& member : message.members) ++count[{member.kind, member.layer}];
  }
  return count;
}

void expect_every_tensor_once(const Plan& plan, const ModelSpec& model) {
  auto count = journeys(plan);
  const bool factors = plan.options.second_order() && plan.step != StepKind::kGradients;
  std::int64_t elements = 0;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const LayerSpec& spec = model.layers[static_cast<std::size_t>(layer)];
    ASSERT_EQ((count[{TensorKind::kGradient, layer}]), 1) << "layer " << layer;
    ASSERT_EQ((count[{TensorKind::kFactorA, layer}]), factors ? 1 : 0) << "layer " << layer;
    ASSERT_EQ((count[{TensorKind::kFactorG, layer}]), factors ? 1 : 0) << "layer " << layer;
    ASSERT_LE((count[{TensorKind::kDiagonalMeans, layer}]), 1) << "layer " << layer;
    elements += spec.gradient_elements() + 2 * count[{TensorKind::kDiagonalMeans, layer}];
    if (factors) elements += packed_elements(spec.d_a) + packed_elements(spec.d_g);
  }
  std::int64_t sent = 0;
  for (const Message& message : plan.messages) sent += message.elements;
  ASSERT_EQ(sent, elements);
}

TEST(MakePlan, SendsEveryTensorExactlyOnce) {
  Random random(31);
  for (int i = 0; i < 60; ++i) {
    const ModelSpec model =
        support::random_model(random, static_cast<std::size_t>(random.integer(1, 15)));
    const CostModel costs =
        affine_costs(4, random.real(0, 3), random.real(0, 0.1), PowerInverse{0.05, 2});
    const int world = static_cast<int>(random.integer(2, 9));
    for (const AlgorithmInfo& algorithm : named_algorithms()) {
      for (const StepKind step : {StepKind::kFull, StepKind::kFactors, StepKind::kGradients}) {
        SCOPED_TRACE(algorithm.name + ", case " + std::to_string(i));
        expect_every_tensor_once(make_plan(model, costs, world, algorithm.options, {}, step),
                                 model);
      }
    }
  }
}

template <class Visit>
void for_every_combination(Visit visit) {
  for (int code = 0; code < 4 * 5 * 5 * 3 * 2 * 3 * 2; ++code) {
    int rest = code;
    const auto digit = [&](int base) {
      const int value = rest % base;
      rest /= base;
      return value;
    };
    PlanOptions options;
    options.factor_schedule = static_cast<FactorSchedule>(digit(4));
    options.fusion = static_cast<Fusion>(digit(5));
    options.placement = static_cast<PlacementKind>(digit(5));
    options.balance_by = static_cast<BalanceBy>(digit(3));
    options.factor_reduce = static_cast<FactorReduce>(digit(2));
    options.exchange = static_cast<Exchange>(digit(3));
    if (digit(2) == 1) options.owners = 2;
    visit(options);
  }
}

TEST(MakePlan, EveryCombinationIsAValidPlanOrAnErrorThatNamesTwoFields) {
  Random random(5);
  const ModelSpec model = support::random_model(random, 6);
  const CostModel costs = affine_costs(3, 0.5, 0.01, PowerInverse{0.05, 2});
  int valid = 0;
  for_every_combination([&](const PlanOptions& options) {
    SCOPED_TRACE(to_json(options).dump());
    const std::string message = config_error([&] { validate(options); });
    if (message != "(no error)") {
      EXPECT_GE(named_fields(message).size(), 2U) << message;
      EXPECT_THROW(make_plan(model, costs, 3, options), ConfigError);
      return;
    }
    ++valid;
    const Plan plan = make_plan(model, costs, 3, options);
    validate_against(plan, model, "test");
    expect_every_tensor_once(plan, model);
  });
  EXPECT_GT(valid, 100);
}

// Messages as text: members such as A0 or g2 (a gradient), joined by +.
std::vector<std::string> spelled(const Plan& plan) {
  std::vector<std::string> messages;
  for (const Message& message : plan.messages) {
    std::string text;
    for (const Member& member : message.members) {
      if (!text.empty()) text += "+";
      text += std::string("AGgT").at(static_cast<std::size_t>(member.kind));
      text += std::to_string(member.layer);
    }
    messages.push_back(text);
  }
  return messages;
}

// Three equal layers: 1 s forward, 2 s backward, 1 s for each factor; A has 6 elements, G has 3,
// the gradient 6.
ModelSpec three_equal_layers() {
  return tiny_model({{3, 2}, {3, 2}, {3, 2}}, layer_times(1, 2, 1, 1));
}

Plan plan_with(const char* algorithm, double alpha, double beta = 0) {
  return make_plan(three_equal_layers(), affine_costs(2, alpha, beta), 2, preset(algorithm));
}

// Pipelined: A ends at 1, 3, 5, the forward pass at 6; gradients at 8, 11, 14, G at 9, 12, 15.
TEST(MakePlan, PipelinedFactorsLeaveAsTheyAreReady) {
  // 0.5 s per message: no neighbour is ready within that time.
  EXPECT_THAT(spelled(plan_with("spd-kfac", 0.5)),
              ElementsAre("A0", "A1", "A2", "g2", "G2", "g1", "G1", "g0", "G0"));
}

TEST(MakePlan, PipelinedGreedyWaitsForNeighboursAndGradientsGoBetween) {
  // 2.5 s per message. A: 3 < 1+2.5 and 5 < 3+2.5 join, sent 5 to 7.5. g2 8 to 10.5 (G2 could
  // start at 9). Then G2+G1 could start at 12, g1 at 11: g1 11 to 13.5. Then G2+G1+G0 could start
  // at 15 (15 < 13.5+2.5), g0 at 14: g0, then all of G.
  EXPECT_THAT(spelled(plan_with("spd-kfac", 2.5)),
              ElementsAre("A0+A1+A2", "g2", "g1", "g0", "G2+G1+G0"));
}

TEST(MakePlan, NaiveFactorsLeaveAtTheEndOfTheirPass) {
  EXPECT_THAT(spelled(plan_with("naive", 0.5)),
              ElementsAre("A0+A1+A2", "g2", "g1", "g0", "G2+G1+G0"));
}

TEST(MakePlan, BulkFactorsLeaveBehindAllGradients) {
  // Without factors between: the forward pass ends at 3, gradients are ready at 5, 7, 9.
  EXPECT_THAT(spelled(plan_with("d-kfac", 0.5)),
              ElementsAre("g2", "g1", "g0", "A0+A1+A2", "G2+G1+G0"));
  // 5 s per message: when g2 has arrived at 10, both others are ready.
  EXPECT_THAT(spelled(plan_with("d-kfac", 5)), ElementsAre("g2", "g1+g0", "A0+A1+A2", "G2+G1+G0"));
}

TEST(MakePlan, SgdSendsGradientsOnly) {
  EXPECT_THAT(spelled(plan_with("sgd", 0.5)), ElementsAre("g2", "g1", "g0"));
}

TEST(MakePlan, OptimalPlansOneSequenceOfAllTensors) {
  // α = 1, β = 0.1. Sent at 15, g0+G0 arrive at 15 + 1 + 0.9 = 16.9, if the channel is free by
  // then. g0 at 14 (to 15.6), then G0 (1.3) end there as well but use the channel longer; more in
  // the last message ends later. All the rest in one message would arrive at 12 + 4.6 > 15, in two
  // it can be there: A0+A1+A2 (5 to 7.8) and the others (12 to 14.8), for one.
  const std::vector<std::string> messages = spelled(plan_with("optimal-fusion", 1, 0.1));
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[2], "g0+G0");
  EXPECT_EQ(messages[0] + "+" + messages[1], "A0+A1+A2+g2+G2+g1+G1");
}

TEST(MakePlan, OneWorkerSendsNothing) {
  for (const AlgorithmInfo& algorithm : named_algorithms()) {
    const Plan plan =
        make_plan(three_equal_layers(), affine_costs(4, 1, 0.1), 1, algorithm.options);
    EXPECT_TRUE(plan.messages.empty()) << algorithm.name;
    EXPECT_TRUE(result_broadcasts(plan, three_equal_layers()).empty()) << algorithm.name;
  }
}

TEST(MakePlan, ScalesCostsOfAnotherWorld) {
  Random random(12);
  const ModelSpec model = support::random_model(random, 10);
  const CostModel costs = affine_costs(4, 0.5, 0.01, PowerInverse{0.05, 2});
  for (const AlgorithmInfo& algorithm : named_algorithms()) {
    EXPECT_EQ(make_plan(model, costs, 32, algorithm.options).digest(),
              make_plan(model, costs.for_world(32), 32, algorithm.options).digest());
  }
}

TEST(MakePlan, OwnerSchemesReduceFactorsAndGradientToTheOwner) {
  Random random(77);
  int owned_layers = 0;
  for (int i = 0; i < 40; ++i) {
    const ModelSpec model = support::random_model(random, 8);
    const CostModel costs = affine_costs(4, 0.5, 0.01, PowerInverse{0.02, 2});
    for (const char* name : {"owner-reduce", "owner-precondition", "owner-blocks"}) {
      SCOPED_TRACE(std::string(name) + ", case " + std::to_string(i));
      const Plan plan = make_plan(model, costs, 4, preset(name));
      std::map<std::pair<TensorKind, int>, Route> expected;
      for (const FactorPlacement& factor : plan.placements) {
        const Route route = factor.owner ? Route{CollectiveOp::kReduce, factor.owner} : Route{};
        const bool is_a = factor.side == FactorSide::kA;
        expected[{is_a ? TensorKind::kFactorA : TensorKind::kFactorG, factor.layer}] = route;
        if (plan.options.exchange == Exchange::kGradient) {
          EXPECT_EQ(factor.sends_gradient, factor.owner.has_value());
        } else {
          EXPECT_FALSE(factor.sends_gradient);
        }
        if (factor.sends_gradient) {
          expected[{TensorKind::kGradient, factor.layer}] = route;
          ++owned_layers;
        }
      }
      for (const Message& message : plan.messages) {
        for (const Member& member : message.members) {
          const auto found = expected.find({member.kind, member.layer});
          EXPECT_EQ(message.route, found == expected.end() ? Route{} : found->second);
        }
      }
    }
  }
  EXPECT_GT(owned_layers, 100);
}

TEST(MakePlan, DiagonalMeansTravelWhereNobodyHoldsBothFactors) {
  // Owners that send inverses may own one factor of a layer only; owners that send V own both.
  const CostModel costs = affine_costs(2, 0, 0, PowerInverse{1, 2});
  const auto means_of = [&](const char* name, int layer) {
    return journeys(make_plan(three_equal_layers(), costs, 2,
                              preset(name)))[{TensorKind::kDiagonalMeans, layer}];
  };
  // Dimensions 3, 2, 3, 2, 3, 2, heaviest first: A to 0, 1, 0 (loads 6, 3), G to 1, 1, 0. Layer 0
  // has two owners.
  EXPECT_EQ(means_of("owner-reduce", 0), 1);
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(means_of("owner-precondition", layer), 0);
    EXPECT_EQ(means_of("spd-kfac", layer), 0);
  }
}

plan::ComputeStream stream_of_three_layers(TaskOrder order, FactorSchedule schedule) {
  const ModelSpec model = three_equal_layers();
  CostModel costs = affine_costs(2, 1, 1);
  costs.task_order = order;
  return plan::compute_stream(model, layer_costs(model, costs), costs, schedule, true);
}

std::vector<double> ends_of(const plan::ComputeStream& stream) {
  std::vector<double> ends;
  for (const Seconds end : plan::end_times(stream)) ends.push_back(end.value());
  return ends;
}

TEST(ComputeStream, FactorsAroundPassesEndWhenTheHandMadeTimelineSays) {
  const auto stream =
      stream_of_three_layers(TaskOrder::kFactorsAroundPasses, FactorSchedule::kPipelined);
  // A_0 F_0 A_1 F_1 A_2 F_2, 1 s each, then B_l 2 s and G_l 1 s from the last layer.
  EXPECT_THAT(ends_of(stream), ElementsAre(1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 14, 15));
  EXPECT_EQ(stream.join, stream.tasks.size());
  EXPECT_THAT(stream.release_a, ElementsAre(0, 2, 4));
  EXPECT_THAT(stream.release_gradient, ElementsAre(10, 8, 6));
  EXPECT_THAT(stream.release_g, ElementsAre(11, 9, 7));
}

TEST(ComputeStream, FactorsBetweenPassesEndWhenTheHandMadeTimelineSays) {
  const auto stream =
      stream_of_three_layers(TaskOrder::kFactorsBetweenPasses, FactorSchedule::kPipelined);
  // F_0 A_0 F_1 A_1 F_2 A_2, 1 s each, then G_l 1 s and B_l 2 s from the last layer.
  EXPECT_THAT(ends_of(stream), ElementsAre(1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 13, 15));
  EXPECT_THAT(stream.release_a, ElementsAre(1, 3, 5));
  EXPECT_THAT(stream.release_g, ElementsAre(10, 8, 6));
  EXPECT_THAT(stream.release_gradient, ElementsAre(11, 9, 7));
}

TEST(ComputeStream, NaiveFactorsLeaveAtTheEndOfTheirPassInEitherOrder) {
  for (const TaskOrder order :
       {TaskOrder::kFactorsAroundPasses, TaskOrder::kFactorsBetweenPasses}) {
    const auto stream = stream_of_three_layers(order, FactorSchedule::kNaive);
    EXPECT_THAT(stream.release_a, ElementsAre(5, 5, 5));
    EXPECT_THAT(stream.release_g, ElementsAre(11, 11, 11));
  }
}

TEST(ComputeStream, BulkFactorsDoNotDependOnTheOrder) {
  const auto around = stream_of_three_layers(TaskOrder::kFactorsAroundPasses, kBulk);
  const auto between = stream_of_three_layers(TaskOrder::kFactorsBetweenPasses, kBulk);
  // F_0 F_1 F_2 B_2 B_1 B_0, then A_0 A_1 A_2 G_2 G_1 G_0.
  EXPECT_THAT(ends_of(around), ElementsAre(1, 2, 3, 5, 7, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_EQ(ends_of(between), ends_of(around));
  EXPECT_EQ(between.release_gradient, around.release_gradient);
}

}  // namespace
}  // namespace spdkfac
