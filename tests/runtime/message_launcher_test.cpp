// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/message_launcher.h"

#include <gmock/gmock.h>

#include "runtime/lone_rank.h"
#include "spdkfac/base/check.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Member kA0{TensorKind::kFactorA, 0};
constexpr Member kA1{TensorKind::kFactorA, 1};
constexpr Member kG0{TensorKind::kFactorG, 0};
constexpr Member kG1{TensorKind::kFactorG, 1};
constexpr Member kGradient0{TensorKind::kGradient, 0};
constexpr Member kGradient1{TensorKind::kGradient, 1};

// A launcher that has seen a first step with one call of each layer.
struct Launching : LoneRank {
  explicit Launching(const Plan& plan, bool defer = false)
      : step(plan, model, order), launcher(communicator, bank, gradients, recorder) {
    launcher.reserve(step.buffer_elements(), test_options(at::kDouble));
    launcher.begin(nullptr, false);
    for (const std::size_t layer : {0, 1}) finish(layer);
    launcher.end();
    bank.clear();
    launcher.begin(&step, defer);
  }
  void add(std::size_t layer, FactorSide side) { launcher.factor_added({layer, side}); }
  // Everything of a layer.
  void finish(std::size_t layer) {
    run(layer);
    add(layer, FactorSide::kA);
    add(layer, FactorSide::kG);
    launcher.gradient_finished(layer, 0);
  }
  runtime::PlannedStep step;
  runtime::MessageLauncher launcher;
};

Plan layer_by_layer(const std::string& algorithm = "spd-kfac") {
  return hand_made_plan({{kA0}, {kA1}, {kG1, kGradient1}, {kG0}, {kGradient0}}, {}, 2, algorithm);
}

TEST(MessageLauncher, SendsInThePlansOrderWhateverIsReadyFirst) {
  Launching rank(layer_by_layer());
  rank.run(1);
  rank.add(1, FactorSide::kA);
  EXPECT_THAT(rank.sent(), IsEmpty());  // A of layer 0 comes first
  rank.run(0);
  rank.add(0, FactorSide::kA);
  EXPECT_THAT(rank.sent(), ElementsAre("all_reduce factor_a 0..0", "all_reduce factor_a 1..1"));
  rank.add(1, FactorSide::kG);
  EXPECT_EQ(rank.sent().size(), 2U);  // its message also has a gradient
  rank.launcher.gradient_finished(1, 0);
  EXPECT_EQ(rank.sent().back(), "all_reduce mixed 1..1");
  rank.launcher.send(3);
  rank.launcher.send(4);
  EXPECT_EQ(rank.sent().size(), 5U);
}

TEST(MessageLauncher, SendsNothingBeforeItHasAPlan) {
  LoneRank rank;
  runtime::MessageLauncher launcher(rank.communicator, rank.bank, rank.gradients, rank.recorder);
  launcher.begin(nullptr, false);
  rank.run(0);
  launcher.factor_added({0, FactorSide::kA});
  launcher.gradient_finished(0, 0);
  launcher.end();
  launcher.discard();
  EXPECT_THAT(rank.sent(), IsEmpty());
}

TEST(MessageLauncher, FollowsAPlanThatIsMadeInTheMiddleOfAStep) {
  LoneRank rank;
  const runtime::PlannedStep step(layer_by_layer(), rank.model, rank.order);
  runtime::MessageLauncher launcher(rank.communicator, rank.bank, rank.gradients, rank.recorder);
  launcher.reserve(step.buffer_elements(), test_options(at::kDouble));
  launcher.begin(nullptr, false);
  rank.run(0);
  launcher.factor_added({0, FactorSide::kA});
  launcher.follow(step);
  for (std::size_t message = 0; message < 5; ++message) launcher.send(message);
  EXPECT_EQ(rank.sent().size(), 5U);
}

TEST(MessageLauncher, PacksFactorsAndCopiesGradients) {
  Launching rank(layer_by_layer());
  rank.finish(0);
  for (std::size_t message = 0; message < 5; ++message) rank.launcher.send(message);
  // Sums of two ranks that hold the same.
  const at::Tensor sum = rank.bank.state(0).factor(FactorSide::kA).sum[0];
  EXPECT_TRUE(torch::allclose(rank.launcher.slot(kA0), upper_triangle(sum) * 2));
  EXPECT_EQ(rank.launcher.factors_of(rank.step.messages()[0]).at(0).count.item<double>(), 8);
  EXPECT_TRUE(torch::equal(rank.launcher.slot(kGradient0),
                           rank.modules[0]->weight.grad().reshape({-1}) * 2));
}

TEST(MessageLauncher, SendsNothingAndNoExamplesForAFactorThatWasNotCaptured) {
  Launching rank(layer_by_layer());
  rank.launcher.send(0);
  EXPECT_TRUE(rank.launcher.slot(kA0).eq(0).all().item<bool>());
  EXPECT_EQ(rank.launcher.factors_of(rank.step.messages()[0]).at(0).count.item<double>(), 0);
}

TEST(MessageLauncher, CountsLieBehindTheMembersOfTheirMessage) {
  const Launching rank(hand_made_plan({{kA0, kGradient0, kG0}, {kA1}}));
  const std::int64_t offset = rank.step.outgoing(0).range.offset;
  EXPECT_EQ(rank.step.outgoing(0).elements, 6 + 6 + 3);
  EXPECT_EQ(rank.step.outgoing(0).range.elements, 6 + 6 + 3 + 2);
  EXPECT_EQ(rank.step.place(kA0).count, offset + 15);
  EXPECT_EQ(rank.step.place(kG0).count, offset + 16);
  EXPECT_GE(rank.step.outgoing(1).range.offset, offset + 17);
}

// The first step did not show it, so nobody knows how often it will be called.
TEST(MessageLauncher, WhatTheFirstStepDidNotShowLeavesAtTheEndHoweverOftenItComes) {
  LoneRank rank;
  const runtime::PlannedStep step(layer_by_layer(), rank.model, rank.order);
  runtime::MessageLauncher launcher(rank.communicator, rank.bank, rank.gradients, rank.recorder);
  launcher.reserve(step.buffer_elements(), test_options(at::kDouble));
  launcher.begin(nullptr, false);
  launcher.end();
  launcher.begin(&step, false);
  for (int call = 0; call < 2; ++call) {
    rank.run(0);
    launcher.factor_added({0, FactorSide::kA});
    launcher.factor_added({0, FactorSide::kG});
    launcher.gradient_finished(0, 0);
  }
  EXPECT_THAT(rank.sent(), IsEmpty());
  for (std::size_t message = 0; message < 5; ++message) launcher.send(message);
  EXPECT_EQ(rank.sent().size(), 5U);
}

TEST(MessageLauncher, NaiveReleasesAWithTheFirstGradientAndKeepsG) {
  Launching rank(
      hand_made_plan({{kA0, kA1}, {kGradient1, kGradient0}, {kG1, kG0}}, {}, 2, "naive"));
  rank.run(0);
  rank.run(1);
  rank.add(0, FactorSide::kA);
  rank.add(1, FactorSide::kA);
  EXPECT_THAT(rank.sent(), IsEmpty());
  rank.add(1, FactorSide::kG);
  EXPECT_THAT(rank.sent(), ElementsAre("all_reduce factor_a 0..1"));
  rank.launcher.gradient_finished(1, 0);
  rank.launcher.gradient_finished(0, 0);
  rank.add(0, FactorSide::kG);
  EXPECT_EQ(rank.sent().size(), 2U);
  rank.launcher.send(2);
  EXPECT_EQ(rank.sent().size(), 3U);
}

TEST(MessageLauncher, DeferredMessagesWaitForTheEndOfThePasses) {
  Launching rank(layer_by_layer(), /*defer=*/true);
  rank.finish(0);
  rank.finish(1);
  EXPECT_THAT(rank.sent(), IsEmpty());
  rank.launcher.launch_deferred();
  EXPECT_EQ(rank.sent().size(), 5U);
  rank.launcher.begin(&rank.step, /*defer=*/false);
  rank.run(0);
  rank.add(0, FactorSide::kA);
  EXPECT_EQ(rank.sent().size(), 6U);
}

TEST(MessageLauncher, DeferredBroadcastsWaitForEachOther) {
  const Plan plan = hand_made_plan({{kA0}, {kA1}, {kG1, kGradient1}, {kG0}, {kGradient0}},
                                   {placed(0, FactorSide::kA, 0), placed(0, FactorSide::kG, 1),
                                    placed(1, FactorSide::kA, {}), placed(1, FactorSide::kG, {})});
  for (const bool defer : {false, true}) {
    Launching rank(plan, defer);
    rank.finish(0);
    rank.finish(1);
    rank.launcher.launch_deferred();
    rank.communicator.clear();
    rank.launcher.broadcast(0);
    EXPECT_EQ(rank.sent().size(), defer ? 0U : 1U);
    rank.launcher.broadcast(1);
    rank.launcher.launch_broadcasts();
    EXPECT_THAT(rank.sent(), ElementsAre("broadcast inverse A l0", "broadcast inverse G l0"));
    // Inverses lie where their factors have been.
    EXPECT_EQ(rank.launcher.broadcast_buffer(0).data_ptr(), rank.launcher.slot(kA0).data_ptr());
  }
}

TEST(MessageLauncher, KnowsGradientsThatWereChangedAfterTheyHadLeft) {
  Launching rank(layer_by_layer());
  rank.finish(0);
  EXPECT_FALSE(rank.launcher.gradients_changed(0));
  rank.modules[0]->weight.mutable_grad().mul_(2);
  EXPECT_TRUE(rank.launcher.gradients_changed(0));
}

TEST(MessageLauncher, KnowsGradientsThatWereReplacedAfterTheyHadLeft) {
  Launching rank(layer_by_layer());
  rank.finish(0);
  at::Tensor& gradient = rank.modules[0]->weight.mutable_grad();
  const at::Tensor first = gradient;
  gradient = first * 2;
  EXPECT_TRUE(rank.launcher.gradients_changed(0));
  gradient = at::Tensor();
  EXPECT_TRUE(rank.launcher.gradients_changed(0));
  gradient = first;
  EXPECT_FALSE(rank.launcher.gradients_changed(0)) << "it is what has left";
}

TEST(MessageLauncher, RefusesWhatComesTooLate) {
  Launching rank(layer_by_layer());
  rank.finish(0);
  expect_config_error([&] { rank.add(0, FactorSide::kA); },
                      "layer l0 was called 2 times in this step, but 1 times in the first one");
  expect_config_error([&] { rank.launcher.gradient_finished(0, 0); },
                      "a gradient of layer l0 was finished more often");
}

TEST(MessageLauncher, DiscardSendsZerosForWhatHasNotLeft) {
  Launching rank(layer_by_layer());
  rank.run(0);
  rank.add(0, FactorSide::kA);
  rank.launcher.discard();
  EXPECT_EQ(rank.sent().size(), 5U);
  EXPECT_TRUE(rank.launcher.slot(kGradient0).eq(0).all().item<bool>());
  rank.launcher.begin(&rank.step, false);  // the next step may come
}

TEST(MessageLauncher, ShowsWhatItSentToAnObserver) {
  Launching rank(layer_by_layer());
  rank.recorder.start(test_device());
  rank.finish(0);
  rank.finish(1);
  rank.launcher.wait(0);
  rank.launcher.record();
  const auto step = rank.recorder.finish(test_device());
  ASSERT_EQ(step->messages.size(), 5U);
  EXPECT_EQ(step->messages[2].name, "all_reduce mixed 1..1");
  EXPECT_EQ(step->messages[2].elements, 3 + 4);
  EXPECT_EQ(step->messages[2].category, Category::kGradientComm);  // the greater part
  EXPECT_EQ(step->parts.back().part, runtime::StepPart::kWait);
}

}  // namespace
}  // namespace spdkfac
