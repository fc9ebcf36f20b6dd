// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/plan.h"

#include <functional>
#include <map>
#include <ostream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/error.h"
#include "spdkfac/plan/plan_file.h"
#include "spdkfac/plan/planner.h"
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
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

ModelSpec three_layers() {
  ModelSpec model = tiny_model({{5, 4}, {4, 3}, {7, 2}}, layer_times(1, 2, 0.5, 0.25));
  // The second layer has a bias and is followed by a module without factors.
  model.layers[1].bias = true;
  model.layers[1].gradients = {9, 3, 3, 3};
  model.parameters += 6;
  return model;
}

// Dear enough that messages fuse, cheap enough that most inverses have owners.
CostModel costs_for(int world) { return affine_costs(world, 0.5, 0.01, PowerInverse{1, 2}); }

Plan plan_of(const std::string& algorithm, int world, StepKind step = StepKind::kFull) {
  return make_plan(three_layers(), costs_for(5), world, preset(algorithm), {}, step);
}

void expect_equal(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.algorithm, b.algorithm);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.world, b.world);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.options, b.options);
  EXPECT_EQ(a.messages, b.messages);
  EXPECT_EQ(a.placements, b.placements);
  EXPECT_EQ(a.predicted_iteration, b.predicted_iteration);
  EXPECT_EQ(a.predicted_breakdown, b.predicted_breakdown);
  EXPECT_EQ(a.digest(), b.digest());
}

TEST(Plan, WithRanksSwappedIsTheSameWorkOfOthers) {
  const Plan plan = plan_of("owner-blocks", 3);
  const Plan swapped = with_ranks_swapped(plan, 2, 0);
  const std::map<int, int> other = {{0, 2}, {1, 1}, {2, 0}};
  ASSERT_EQ(swapped.placements.size(), plan.placements.size());
  std::set<int> owners;
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    FactorPlacement expected = plan.placements[i];
    if (expected.owner) {
      owners.insert(*expected.owner);
      expected.owner = other.at(*expected.owner);
    }
    EXPECT_EQ(swapped.placements[i], expected) << i;
  }
  EXPECT_GT(owners.size(), 1U);
  ASSERT_EQ(swapped.messages.size(), plan.messages.size());
  for (std::size_t i = 0; i < plan.messages.size(); ++i) {
    Message expected = plan.messages[i];
    if (expected.route.root) expected.route.root = other.at(*expected.route.root);
    EXPECT_EQ(swapped.messages[i], expected) << i;
  }
  expect_equal(with_ranks_swapped(swapped, 0, 2), plan);
  expect_equal(with_ranks_swapped(plan, 1, 1), plan);
}

TEST(Plan, JsonRoundTripGivesAnEqualPlan) {
  for (const AlgorithmInfo& algorithm : named_algorithms()) {
    for (const int world : {1, 2, 5}) {
      for (const StepKind step : {StepKind::kFull, StepKind::kFactors, StepKind::kGradients}) {
        SCOPED_TRACE(algorithm.name + " on " + std::to_string(world));
        const Plan plan = plan_of(algorithm.name, world, step);
        // Through text, as in a file.
        const Json document = parse_json(to_json(plan).dump(), "text");
        expect_equal(parse_plan(document, "plan.json"), plan);
      }
    }
  }
}

TEST(Plan, JsonRoundTripKeepsThePredictionAndEveryOption) {
  PlanOptions options = preset("owner-blocks");
  options.owners = 2;
  options.nct_below = 3;
  options.threshold_bytes = Bytes(4096);
  Plan plan = make_plan(three_layers(), costs_for(5), 5, options,
                        {.factors = 2, .inverses = 4, .spread = true});
  plan.predicted_iteration = Seconds(2.5);
  plan.predicted_breakdown[Category::kForwardBackward] = Seconds(1.5);
  plan.predicted_breakdown[Category::kInverseComm] = Seconds(1);
  expect_equal(parse_plan(to_json(plan), "plan.json"), plan);
}

TEST(Plan, JsonFollowsTheDocumentedFormat) {
  const Json document = to_json(plan_of("spd-kfac", 2));
  EXPECT_EQ(document.at("format"), "spdkfac.plan/1");
  EXPECT_EQ(document.at("algorithm"), "spd-kfac");
  EXPECT_EQ(document.at("world"), 2);
  for (const char* key : {"options", "messages", "factors"}) EXPECT_TRUE(document.contains(key));
  for (const Json& message : document.at("messages")) {
    for (const char* key : {"elements", "op", "root"}) EXPECT_TRUE(message.contains(key)) << key;
  }
  for (const Json& factor : document.at("factors")) {
    for (const char* key : {"layer", "which", "dim", "type", "owner", "exchange"}) {
      EXPECT_TRUE(factor.contains(key)) << key;
    }
    EXPECT_EQ(factor.at("type") == "NCT", factor.at("owner").is_null());
  }
}

struct BadPlan {
  const char* name;
  std::function<void(Json&)> apply;
  const char* place;
};
void PrintTo(const BadPlan& bad, std::ostream* out) { *out << bad.name; }

class ParsePlanRejects : public ::testing::TestWithParam<BadPlan> {};

TEST_P(ParsePlanRejects, WithTheFieldsPath) {
  Json document = to_json(plan_of("mpd-kfac", 5));
  GetParam().apply(document);
  EXPECT_THAT(config_error([&] { parse_plan(document, "p.json"); }),
              AllOf(StartsWith("p.json: "), HasSubstr(GetParam().place)));
}

INSTANTIATE_TEST_SUITE_P(
    BadPlans, ParsePlanRejects,
    ::testing::Values(
        BadPlan{"OtherFormat", [](Json& d) { d["format"] = "spdkfac.plan/9"; }, "format"},
        BadPlan{"UnknownField", [](Json& d) { d["colour"] = 1; }, "colour"},
        BadPlan{"NoWorker", [](Json& d) { d["world"] = 0; }, "world"},
        BadPlan{"OtherStep", [](Json& d) { d["step"] = "half"; }, "step"},
        BadPlan{"OtherFusion", [](Json& d) { d["options"]["fusion"] = "all"; }, "options.fusion"},
        BadPlan{"EmptyMessage", [](Json& d) { d["messages"][0]["layers"] = Json::array(); },
                "messages[0]"},
        BadPlan{"OtherKind", [](Json& d) { d["messages"][0]["kind"] = "loss"; },
                "messages[0].kind"},
        BadPlan{"NegativeLayer", [](Json& d) { d["messages"][0]["layers"][0] = -1; },
                "messages[0].layers[0]"},
        BadPlan{"ReduceWithoutRoot", [](Json& d) { d["messages"][0]["op"] = "reduce"; }, "root"},
        BadPlan{"AllReduceWithRoot", [](Json& d) { d["messages"][0]["root"] = 0; }, "root"},
        BadPlan{"RootOutsideTheWorld",
                [](Json& d) {
                  d["messages"][0]["op"] = "reduce";
                  d["messages"][0]["root"] = 5;
                },
                "messages[0].root"},
        BadPlan{"OwnerOutsideTheWorld", [](Json& d) { d["factors"][0]["owner"] = 5; },
                "factors[0].owner"},
        BadPlan{"NegativeOwner", [](Json& d) { d["factors"][0]["owner"] = -1; },
                "factors[0].owner"},
        BadPlan{"ReplicatedWithOwner", [](Json& d) { d["factors"][0]["type"] = "NCT"; },
                "factors[0]"},
        BadPlan{"GradientWithoutOwner",
                [](Json& d) {
                  d["factors"][0]["type"] = "NCT";
                  d["factors"][0]["owner"] = nullptr;
                  d["factors"][0]["exchange"] = "gradient";
                },
                "factors[0]"}),
    [](const auto& test) { return std::string(test.param.name); });

struct Change {
  const char* name;
  std::function<void(Plan&)> apply;
  const char* expected = "";  // in the message of validate_against
};
void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

TEST(PlanDigest, IsSixteenHexadecimalDigitsAndTheSameForEqualPlans) {
  for (const AlgorithmInfo& algorithm : named_algorithms()) {
    const std::string digest = plan_of(algorithm.name, 5).digest();
    EXPECT_THAT(digest, MatchesRegex("[0-9a-f]+"));
    EXPECT_EQ(digest.size(), 16U);
    EXPECT_EQ(digest, plan_of(algorithm.name, 5).digest());
  }
}

TEST(PlanDigest, DoesNotDependOnThePrediction) {
  Plan plan = plan_of("spd-kfac", 5);
  const std::string before = plan.digest();
  plan.predicted_iteration = Seconds(1);
  EXPECT_EQ(plan.digest(), before);
}

TEST(PlanDigest, ChangesWithEveryField) {
  // Messages: factors of three layers and their gradients, so there are some to change.
  const Plan plan = plan_of("mpd-kfac", 5);
  const std::vector<Change> changes = {
      {"algorithm", [](Plan& p) { p.algorithm = "auto"; }},
      {"model", [](Plan& p) { p.model = "other"; }},
      {"world", [](Plan& p) { p.world = 6; }},
      {"step", [](Plan& p) { p.step = StepKind::kFactors; }},
      {"schedule", [](Plan& p) { p.options.factor_schedule = FactorSchedule::kNaive; }},
      {"fusion", [](Plan& p) { p.options.fusion = Fusion::kNone; }},
      {"threshold", [](Plan& p) { p.options.threshold_bytes = Bytes(8); }},
      {"placement", [](Plan& p) { p.options.placement = PlacementKind::kLpt; }},
      {"balance", [](Plan& p) { p.options.balance_by = BalanceBy::kTime; }},
      {"reduce", [](Plan& p) { p.options.factor_reduce = FactorReduce::kOwner; }},
      {"exchange", [](Plan& p) { p.options.exchange = Exchange::kCheapest; }},
      {"nct_below", [](Plan& p) { p.options.nct_below = 7; }},
      {"owners", [](Plan& p) { p.options.owners = 1; }},
      {"factor_interval", [](Plan& p) { p.intervals.factors = 7; }},
      {"inverse_interval", [](Plan& p) { p.intervals.inverses = 7; }},
      {"spread refreshes", [](Plan& p) { p.intervals.spread = true; }},
      {"message order", [](Plan& p) { std::swap(p.messages.front(), p.messages.back()); }},
      {"message missing", [](Plan& p) { p.messages.pop_back(); }},
      {"elements", [](Plan& p) { ++p.messages.front().elements; }},
      {"op", [](Plan& p) { p.messages.front().route.op = CollectiveOp::kReduce; }},
      {"root", [](Plan& p) { p.messages.front().route.root = 0; }},
      {"member layer", [](Plan& p) { p.messages.front().members.front().layer = 0; }},
      {"member kind",
       [](Plan& p) { p.messages.front().members.front().kind = TensorKind::kDiagonalMeans; }},
      {"factor order", [](Plan& p) { std::swap(p.placements.front(), p.placements.back()); }},
      {"factor missing", [](Plan& p) { p.placements.pop_back(); }},
      {"factor layer", [](Plan& p) { p.placements.front().layer = 1; }},
      {"factor side", [](Plan& p) { p.placements.front().side = FactorSide::kG; }},
      {"factor dim", [](Plan& p) { ++p.placements.front().dim; }},
      {"owner", [](Plan& p) { p.placements.front().owner = 3; }},
      {"no owner", [](Plan& p) { p.placements.front().owner.reset(); }},
      {"sends_gradient", [](Plan& p) { p.placements.front().sends_gradient = true; }}};
  std::map<std::string, std::string> seen = {{plan.digest(), "unchanged"}};
  for (const Change& change : changes) {
    Plan changed = plan;
    change.apply(changed);
    const auto [found, fresh] = seen.emplace(changed.digest(), change.name);
    EXPECT_TRUE(fresh) << change.name << " has the digest of: " << found->second;
  }
}

TEST(ValidateAgainst, AcceptsWhatMakePlanMakes) {
  Random random(7);
  std::vector<ModelSpec> models = {three_layers(), tiny_model({{3, 2}}, layer_times(1, 1, 1, 1))};
  for (std::size_t layers = 1; layers <= 12; ++layers) {
    models.push_back(support::random_model(random, layers));
  }
  for (const ModelSpec& model : models) {
    for (const AlgorithmInfo& algorithm : named_algorithms()) {
      for (const int world : {1, 2, 3, 5, 64}) {
        for (const StepKind step : {StepKind::kFull, StepKind::kFactors, StepKind::kGradients}) {
          const Plan plan = make_plan(model, costs_for(4), world, preset(algorithm.name), {}, step);
          EXPECT_NO_THROW(validate_against(plan, model, "test"))
              << algorithm.name << " on " << world << ", " << model.layers.size() << " layers";
        }
      }
    }
  }
}

class ValidateAgainstRejects : public ::testing::TestWithParam<Change> {};

// The plan has owners, several messages, and all tensors of three layers (0, 1, 2).
TEST_P(ValidateAgainstRejects, WithItsMessage) {
  Plan plan = plan_of("mpd-kfac", 5);
  GetParam().apply(plan);
  EXPECT_THAT(config_error([&] { validate_against(plan, three_layers(), "p.json"); }),
              AllOf(StartsWith("p.json: "), HasSubstr(GetParam().expected)));
}

Message gradient_to(int layer, std::int64_t elements, Route route) {
  return {{{TensorKind::kGradient, layer}}, elements, route};
}

INSTANTIATE_TEST_SUITE_P(
    Damages, ValidateAgainstRejects,
    ::testing::Values(
        Change{"TensorMissing", [](Plan& p) { p.messages.pop_back(); }, "missing"},
        Change{"MessageTwice", [](Plan& p) { p.messages.push_back(p.messages.front()); }, "twice"},
        Change{"GradientTwice", [](Plan& p) { p.messages.push_back(gradient_to(0, 20, {})); },
               "twice"},
        Change{"OtherSize", [](Plan& p) { ++p.messages.front().elements; }, "elements"},
        Change{"LayerBehindTheLast", [](Plan& p) { p.messages.front().members.front().layer = 3; },
               "layer"},
        Change{"NegativeLayer", [](Plan& p) { p.messages.front().members.front().layer = -1; },
               "layer"},
        Change{"RootOutsideTheWorld",
               [](Plan& p) {
                 p.messages.front().route = {CollectiveOp::kReduce, 5};
               },
               "is not sent to where"},
        Change{"OtherModel", [](Plan& p) { p.model = "other"; }, "other"},
        Change{"OtherDimension", [](Plan& p) { ++p.placements.front().dim; }, "dim"},
        Change{"FactorLayerBehindTheLast", [](Plan& p) { p.placements.front().layer = 3; },
               "layer"},
        Change{"OwnerOutsideTheWorld", [](Plan& p) { p.placements.front().owner = 5; }, "owner"},
        Change{"NegativeOwner", [](Plan& p) { p.placements.front().owner = -1; }, "owner"},
        Change{"FactorMissing", [](Plan& p) { p.placements.pop_back(); }, "factor"},
        Change{"FactorTwice", [](Plan& p) { p.placements.push_back(p.placements.front()); },
               "twice"},
        Change{"GradientSentByTwoOwners",
               [](Plan& p) {
                 p.placements[0].sends_gradient = true;
                 p.placements[1].sends_gradient = true;
               },
               "owner"},
        Change{"GradientSentWithoutOwner",
               [](Plan& p) {
                 p.placements[0].owner.reset();
                 p.placements[1].owner.reset();
                 p.placements[0].sends_gradient = true;
                 p.placements[1].sends_gradient = true;
               },
               "owner"},
        Change{"GradientReducedToWhoDoesNotSendIt",
               [](Plan& p) {
                 for (Message& message : p.messages) {
                   if (message.members.front().kind == TensorKind::kGradient) {
                     message.route = {CollectiveOp::kReduce, 0};
                   }
                 }
               },
               "gradient"},
        Change{"FactorReducedToWhoDoesNotOwnIt",
               [](Plan& p) {
                 for (Message& message : p.messages) {
                   if (message.members.front().kind == TensorKind::kFactorA) {
                     message.route = {CollectiveOp::kReduce, 4};
                   }
                 }
               },
               "factor"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ValidateAgainst, RejectsDiagonalMeansThatAreMissingOrDoNotLeaveLast) {
  PlanOptions options = preset("owner-reduce");
  options.nct_below = 0;  // every factor has an owner, here A and G of a layer different ones
  const Plan plan = make_plan(three_layers(), costs_for(5), 5, options);
  const Message means = plan.messages.back();
  ASSERT_EQ(means.members.front().kind, TensorKind::kDiagonalMeans);
  const auto error_of = [&](const auto& change) {
    Plan changed = plan;
    change(changed.messages);
    return config_error([&] { validate_against(changed, three_layers(), "p.json"); });
  };
  EXPECT_THAT(error_of([](auto& messages) { messages.pop_back(); }), HasSubstr("diagonal means"));
  EXPECT_THAT(error_of([&](auto& messages) {
                messages.pop_back();
                messages.insert(messages.begin(), means);
              }),
              HasSubstr("messages[1]: diagonal means leave behind all other tensors"));
}

TEST(ValidateAgainst, RejectsABulkMessageOfGradientsAndFactors) {
  Plan plan = plan_of("d-kfac", 2);
  const auto factors = std::find_if(
      plan.messages.begin(), plan.messages.end(),
      [](const Message& message) { return message.members.front().kind != TensorKind::kGradient; });
  ASSERT_TRUE(factors != plan.messages.begin() && factors != plan.messages.end());
  Message& last = *std::prev(factors);
  last.members.insert(last.members.end(), factors->members.begin(), factors->members.end());
  last.elements += factors->elements;
  plan.messages.erase(factors);
  EXPECT_THAT(config_error([&] { validate_against(plan, three_layers(), "p.json"); }),
              HasSubstr("in a bulk schedule gradients and factors travel apart"));
}

TEST(ValidateAgainst, RejectsThePlanOfAnotherModel) {
  const Plan plan = plan_of("spd-kfac", 2);
  EXPECT_THAT(config_error([&] {
                validate_against(plan, tiny_model({{5, 4}, {4, 3}}), "p.json");
              }),
              StartsWith("p.json: "));
  ModelSpec other = three_layers();
  other.layers[2].d_a = 6;
  EXPECT_THAT(config_error([&] { validate_against(plan, other, "p.json"); }),
              StartsWith("p.json: "));
}

TEST(ExchangeSteps, BroadcastEveryOwnedInverseInOrder) {
  const Plan plan = plan_of("mpd-kfac", 5);
  const auto steps = result_broadcasts(plan, three_layers());
  // Sequential: A_0, G_0, A_1, … from 0, 1, 2, 3, 4, 0; d(d+1)/2 elements of 5, 4, 4, 3, 7, 2.
  const std::vector<std::int64_t> elements = {15, 10, 10, 6, 28, 3};
  ASSERT_EQ(steps.size(), elements.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].first, i);
    EXPECT_EQ(steps[i].last, i);
    EXPECT_EQ(steps[i].root, static_cast<int>(i % 5));
    EXPECT_FALSE(steps[i].gradients);
    EXPECT_EQ(steps[i].elements, elements[i]);
    EXPECT_EQ(steps[i].tensors, 1);
  }
}

TEST(ExchangeSteps, JoinNeighbouringGradientsOfOneOwner) {
  // By hand: layers 0 and 1 belong to worker 1, layer 2 is inverted everywhere.
  Plan plan = plan_of("owner-precondition", 5);
  plan.placements.clear();
  for (int layer = 0; layer < 3; ++layer) {
    const LayerSpec spec = three_layers().layers[static_cast<std::size_t>(layer)];
    const bool owned = layer < 2;
    const std::optional<int> owner = owned ? std::optional<int>(1) : std::nullopt;
    plan.placements.push_back({layer, FactorSide::kA, spec.d_a, owner, owned});
    plan.placements.push_back({layer, FactorSide::kG, spec.d_g, owner, owned});
  }
  const auto steps = result_broadcasts(plan, three_layers());
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].first, 0U);
  EXPECT_EQ(steps[0].last, 3U);
  EXPECT_EQ(steps[0].root, 1);
  EXPECT_TRUE(steps[0].gradients);
  // 5·4, then 4·3 with the bias and two tensors of 3 behind it; 2 for the inner product of each.
  EXPECT_EQ(steps[0].elements, 20 + 12 + 3 + 3 + 2 * 2);
  EXPECT_EQ(layers_sending_gradient(plan, 3), (std::vector<bool>{true, true, false}));
}

TEST(ExchangeSteps, NothingToSendWithoutOwners) {
  EXPECT_TRUE(result_broadcasts(plan_of("d-kfac", 5), three_layers()).empty());
  EXPECT_TRUE(result_broadcasts(plan_of("sgd", 5), three_layers()).empty());
}

TEST(WithoutGradients, LeavesWhatElseTravels) {
  const ModelSpec model = three_layers();
  for (const char* algorithm : {"spd-kfac", "optimal-fusion", "owner-blocks", "sgd"}) {
    const Plan plan = plan_of(algorithm, 4);
    const Plan rest = without_gradients(plan, model);
    EXPECT_EQ(rest.placements, plan.placements);
    std::vector<Member> expected;
    std::vector<Member> members;
    for (const Message& message : plan.messages) {
      for (const Member& member : message.members) {
        if (member.kind != TensorKind::kGradient) expected.push_back(member);
      }
    }
    for (const Message& message : rest.messages) {
      std::int64_t elements = 0;
      for (const Member& member : message.members) {
        elements +=
            member_size(model.layers[static_cast<std::size_t>(member.layer)], member.kind).elements;
        members.push_back(member);
      }
      EXPECT_GT(message.members.size(), 0U);
      EXPECT_EQ(message.elements, elements);
    }
    EXPECT_EQ(members, expected);
  }
}

TEST(MemberSize, CountsElementsAndTensorsOfEachKind) {
  // d_a 4, d_g 3, gradients of 9, 3, 3, 3 elements.
  const LayerSpec layer = three_layers().layers[1];
  EXPECT_EQ(member_size(layer, TensorKind::kFactorA).elements, 10);
  EXPECT_EQ(member_size(layer, TensorKind::kFactorA).tensors, 1);
  EXPECT_EQ(member_size(layer, TensorKind::kFactorG).elements, 6);
  EXPECT_EQ(member_size(layer, TensorKind::kGradient).elements, 18);
  EXPECT_EQ(member_size(layer, TensorKind::kGradient).tensors, 4);
  // Two traces.
  EXPECT_EQ(member_size(layer, TensorKind::kDiagonalMeans).elements, 2);
}

}  // namespace
}  // namespace spdkfac
