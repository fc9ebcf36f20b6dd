// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/plan/planner.h"

namespace spdkfac {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ModelSpec two_layers() {
  ModelSpec model;
  model.name = "tiny";
  model.parameters = 8;
  for (const char* name : {"first", "second"}) {
    LayerSpec layer;
    layer.name = name;
    layer.d_a = layer.d_g = 2;
    layer.gradients = {4};
    layer.times = LayerTimes{Seconds(1), Seconds(2), Seconds(1), Seconds(1)};
    model.layers.push_back(layer);
  }
  return model;
}

CostModel lab(int world) {
  CostModel costs;
  costs.name = "lab";
  costs.world = world;
  costs.all_reduce = costs.broadcast = costs.reduce = CollectiveCost(Seconds(0.001), Seconds(0));
  costs.inverse = CubicInverse{0.5, 0, 0, 0};  // half a second whatever the dimension
  return costs;
}

TEST(PlanText, NamesOwnersTheirWorkAndTheirFactors) {
  const Plan plan = make_plan(two_layers(), lab(2), 2, preset("spd-kfac"));
  // Four factors of 0.5 s on two workers: A0, A1 on rank 0 and G0, G1 on rank 1, one second each.
  const std::string text = report::plan_text(plan, two_layers(), lab(2), false);
  EXPECT_THAT(text, HasSubstr("4 owned by 2 of 2 ranks; owners send inverses"));
  EXPECT_THAT(text, ::testing::ContainsRegex("0 +1000.0 .*A0\\(2\\) A1\\(2\\)"));
  EXPECT_THAT(text, ::testing::ContainsRegex("1 +1000.0 .*G0\\(2\\) G1\\(2\\)"));
  EXPECT_THAT(text, HasSubstr(plan.digest()));
}

TEST(PlanText, SaysWhatGradientWorkersAndOtherMethodsSend) {
  CostModel costs = lab(4);
  costs.compute = ComputeRates{FlopsPerSecond(1), FlopsPerSecond(1), FlopsPerSecond(1)};
  const auto text = [&](const char* name) {
    return report::plan_text(make_plan(two_layers(), costs, 4, preset(name)), two_layers(), costs,
                             false);
  };
  EXPECT_THAT(text("kaisa-mem"), HasSubstr("owners send gradients\n"));
  EXPECT_THAT(text("kaisa-hybrid"),
              HasSubstr("owners send inverses to 2 gradient workers, who send V\n"));
  EXPECT_THAT(text("kaisa-comm"), HasSubstr("owners send inverses\n"));
  EXPECT_THAT(text("muon"), HasSubstr("owners send updates\n"));
  // Two inverse roots of 11 inversions, half a second each.
  EXPECT_THAT(text("shampoo"), HasSubstr("shampoo, threshold fusion"));
  EXPECT_THAT(text("shampoo"), ::testing::ContainsRegex("0 +11000.0 .*A0\\(2\\) G0\\(2\\)"));
}

TEST(PlanSummary, HasNumbersAndNoNames) {
  const Plan plan = make_plan(two_layers(), lab(2), 2, preset("spd-kfac"));
  const std::string text = report::plan_summary(plan, two_layers(), lab(2));
  EXPECT_THAT(text, HasSubstr(plan.digest()));
  EXPECT_THAT(text, HasSubstr("factors: 4\n  4 owned by 2 of 2 ranks; owners send inverses\n"));
  EXPECT_THAT(text, Not(HasSubstr("A0")));
}

TEST(PlanText, GroupsMessagesByKindUnlessFull) {
  const Plan plan = make_plan(two_layers(), lab(2), 2, preset("lw-none"));
  const std::string summary = report::plan_text(plan, two_layers(), lab(2), false);
  EXPECT_THAT(summary, HasSubstr("factor_a    2  0 | 1\n"));
  EXPECT_THAT(summary, HasSubstr("factor_g    2  1 | 0\n"));
  const std::string full = report::plan_text(plan, two_layers(), lab(2), true);
  EXPECT_THAT(full, Not(HasSubstr(" | ")));
  EXPECT_THAT(full, ::testing::ContainsRegex("0  factor_a  all_reduce"));
}

TEST(PlanText, SaysThatNothingTravelsOnOneWorker) {
  const Plan plan = make_plan(two_layers(), lab(1), 1, preset("kfac"));
  const std::string text = report::plan_text(plan, two_layers(), lab(1), false);
  EXPECT_THAT(text, HasSubstr("messages: none"));
  EXPECT_THAT(text, HasSubstr("every rank inverts 4: 2000.0 ms"));
}

TEST(PlanText, SummarisesManyOwners) {
  ModelSpec model = two_layers();
  for (int i = 0; i < 30; ++i) {
    model.layers.push_back(model.layers[0]);
    model.layers.back().name = "more" + std::to_string(i);
  }
  const Plan plan = make_plan(model, lab(64), 64, preset("spd-kfac"));
  EXPECT_THAT(report::plan_text(plan, model, lab(64), false),
              HasSubstr("and 52 more owners; --full"));
  EXPECT_THAT(report::plan_text(plan, model, lab(64), true), Not(HasSubstr("more owners")));
}

}  // namespace
}  // namespace spdkfac
