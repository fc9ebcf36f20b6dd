// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/inverse_stage.h"

#include <gmock/gmock.h>

#include "runtime/lone_rank.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)
using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<std::vector<Member>> kAllFactors = {{{TensorKind::kFactorA, 0},
                                                       {TensorKind::kFactorA, 1},
                                                       {TensorKind::kFactorG, 1},
                                                       {TensorKind::kFactorG, 0}}};

// Rank 0 of two when the averages are there and all factor messages have left.
struct Inverting : LoneRank {
  Inverting(const Plan& plan, const KfacOptions& given = {})
      : LoneRank(0, 2, given),
        step(plan, model, order),
        launcher(communicator, bank, gradients, recorder),
        stage(bank, launcher, gradients, recorder, 0),
        inner(2) {
    for (const std::size_t layer : {0, 1}) {
      run(layer, 6);
      average(layer);
    }
    const c10::NoGradGuard no_grad;
    launcher.reserve(step.buffer_elements(), test_options(at::kDouble));
    launcher.begin(&step, false);
    for (std::size_t i = 0; i < step.messages().size(); ++i) {
      if (!runtime::is_means(step.messages()[i])) launcher.send(i);
    }
    communicator.clear();
  }
  void invert() {
    const c10::NoGradGuard no_grad;
    stage.run(step, {true, true}, {0, 1}, inner);
  }
  at::Tensor inverse(std::size_t layer, FactorSide side) const {
    return bank.state(layer).factor(side).inverse->value[0];
  }
  // From the average and the damping of the options, by definition.
  at::Tensor expected(std::size_t layer, FactorSide side) const {
    const auto mean = [&](FactorSide one) {
      const at::Tensor upper = bank.state(layer).factor(one).average->mean()[0].triu();
      return upper + upper.triu(1).t();
    };
    const double trace_a = mean(FactorSide::kA).diagonal().mean().item<double>();
    const double trace_g = mean(FactorSide::kG).diagonal().mean().item<double>();
    const double pi = std::sqrt(trace_a / trace_g);
    const double damping = std::sqrt(options.damping) * (side == FactorSide::kA ? pi : 1 / pi);
    const at::Tensor factor = mean(side);
    return at::linalg_inv(factor + damping * torch::eye(factor.size(0), factor.options()));
  }
  runtime::PlannedStep step;
  runtime::MessageLauncher launcher;
  runtime::InverseStage stage;
  std::vector<at::Tensor> inner;
};

TEST(InverseStage, WithoutOwnersEveryRankInvertsEverythingAndSendsNothing) {
  Inverting rank(
      hand_made_plan(kAllFactors, {placed(0, FactorSide::kA, {}), placed(0, FactorSide::kG, {}),
                                   placed(1, FactorSide::kA, {}), placed(1, FactorSide::kG, {})}));
  rank.invert();
  EXPECT_THAT(rank.sent(), IsEmpty());
  for (const std::size_t layer : {0, 1}) {
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      EXPECT_TRUE(torch::allclose(rank.inverse(layer, side), rank.expected(layer, side)));
    }
    EXPECT_FALSE(rank.bank.state(layer).stale);
  }
}

TEST(InverseStage, SendsWhatItOwnsInThePlansOrderAndTakesInTheRest) {
  Inverting rank(
      hand_made_plan(kAllFactors, {placed(0, FactorSide::kA, 1), placed(1, FactorSide::kA, 0),
                                   placed(1, FactorSide::kG, {}), placed(0, FactorSide::kG, 0)}));
  rank.invert();
  EXPECT_THAT(rank.sent(), ElementsAre("broadcast inverse A l0", "broadcast inverse A l1",
                                       "broadcast inverse G l0"));
  for (const auto& [layer, side] :
       {std::pair(1, FactorSide::kA), std::pair(1, FactorSide::kG), std::pair(0, FactorSide::kG)}) {
    const auto index = static_cast<std::size_t>(layer);
    EXPECT_TRUE(torch::allclose(rank.inverse(index, side), rank.expected(index, side)));
  }
  // What an absent rank broadcasts is zeros.
  EXPECT_TRUE(rank.inverse(0, FactorSide::kA).eq(0).all().item<bool>());
  EXPECT_EQ(rank.incidents.counters().inverse_updates, 3);
}

TEST(InverseStage, TheOwnerOfALayerSendsItsPreconditionedGradient) {
  Inverting rank(hand_made_plan(
      kAllFactors, {placed(0, FactorSide::kA, 0, true), placed(0, FactorSide::kG, 0, true),
                    placed(1, FactorSide::kA, 1, true), placed(1, FactorSide::kG, 1, true)}));
  const at::Tensor before = rank.modules[0]->weight.grad().clone();
  rank.invert();
  EXPECT_THAT(rank.sent(), ElementsAre("broadcast gradient of l0", "broadcast gradient of l1"));
  const at::Tensor expected =
      rank.expected(0, FactorSide::kG).mm(before).mm(rank.expected(0, FactorSide::kA));
  EXPECT_TRUE(torch::allclose(rank.modules[0]->weight.grad(), expected));
  EXPECT_NEAR(rank.inner[0].item<double>(), (before * expected).sum().item<double>(), 1e-12);
  // The other owner is absent.
  EXPECT_TRUE(rank.modules[1]->weight.grad().eq(0).all().item<bool>());
  EXPECT_EQ(rank.inner[1].item<double>(), 0);
}

TEST(InverseStage, BetweenRefreshesOwnersPreconditionWithTheInversesThatTheyHave) {
  Plan plan = hand_made_plan(
      kAllFactors, {placed(0, FactorSide::kA, 0, true), placed(0, FactorSide::kG, 0, true),
                    placed(1, FactorSide::kA, 0, true), placed(1, FactorSide::kG, 0, true)});
  plan.step = StepKind::kFactors;
  Inverting rank(plan);
  const at::Tensor before = rank.modules[0]->weight.grad().clone();
  rank.invert();
  // One broadcast for both layers of the owner; the first inverses are identities.
  EXPECT_EQ(rank.sent().size(), 1U);
  EXPECT_TRUE(torch::allclose(rank.modules[0]->weight.grad(), before));
  EXPECT_EQ(rank.incidents.counters().inverse_updates, 0);
}

TEST(InverseStage, MeansOfDiagonalsTravelBeforeTheInverses) {
  std::vector<std::vector<Member>> messages = kAllFactors;
  messages.push_back({{TensorKind::kDiagonalMeans, 0}, {TensorKind::kDiagonalMeans, 1}});
  Inverting rank(
      hand_made_plan(messages, {placed(0, FactorSide::kA, 0), placed(0, FactorSide::kG, 1),
                                placed(1, FactorSide::kA, {}), placed(1, FactorSide::kG, {})}));
  rank.invert();
  EXPECT_EQ(rank.sent().size(), 3U);
  EXPECT_EQ(rank.communicator.calls()[0].elements, 4);
  // Of layer 1 this rank gives both means, and its absent peer the same again: π does not change.
  EXPECT_TRUE(torch::allclose(rank.inverse(1, FactorSide::kG), rank.expected(1, FactorSide::kG)));
}

}  // namespace
}  // namespace spdkfac
