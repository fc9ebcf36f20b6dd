// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/residence.h"

#include <gmock/gmock.h>

#include "runtime/lone_rank.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)
using testing::ElementsAre;
using testing::IsEmpty;

constexpr runtime::FactorId kFactorA0{0, FactorSide::kA};
constexpr runtime::FactorId kFactorG0{0, FactorSide::kG};

// A of layer 0 is reduced to `root`, everything else to all.
Plan plan_with_root(std::optional<int> root) {
  Plan plan = hand_made_plan(
      {{{TensorKind::kFactorA, 0}},
       {{TensorKind::kFactorG, 0}, {TensorKind::kFactorA, 1}, {TensorKind::kFactorG, 1}}});
  if (root) plan.messages.front().route = {CollectiveOp::kReduce, root};
  return plan;
}

bool keeps_average(const LoneRank& rank, runtime::FactorId id) {
  return rank.bank.state(id.layer).factor(id.side).average.has_value();
}

TEST(Residences, FollowTheRoutesOfFactorsAndTheOwnersOfLayers) {
  Plan plan = plan_with_root(1);
  plan.placements = {placed(1, FactorSide::kA, 0, true), placed(1, FactorSide::kG, 0, true),
                     placed(0, FactorSide::kA, 1), placed(0, FactorSide::kG, {})};
  const runtime::Residences residences =
      runtime::residences_of(plan, runtime::LayerOrder({1, 0}, 2));
  // The plan's layer 0 is tracked as 1.
  EXPECT_EQ(residences.at({1, FactorSide::kA}), (runtime::FactorResidence{1, std::nullopt}));
  EXPECT_EQ(residences.at({1, FactorSide::kG}), (runtime::FactorResidence{}));
  EXPECT_EQ(residences.at({0, FactorSide::kA}), (runtime::FactorResidence{std::nullopt, 0}));
  EXPECT_EQ(residences.size(), 4U);
}

TEST(Residences, ArePlansWithoutMessagesNone) {
  EXPECT_TRUE(runtime::residences_of(hand_made_plan({}, {placed(0, FactorSide::kA, {})}, 1),
                                     runtime::LayerOrder({0}, 2))
                  .empty());
}

TEST(Residence, KeepsOnlyWhatThePlanAsksFor) {
  for (const int root : {0, 1}) {
    LoneRank rank;
    rank.run(0);
    rank.run(1);
    runtime::Residence residence(rank.communicator, rank.bank);
    residence.migrate(runtime::residences_of(plan_with_root(root), rank.order));
    EXPECT_EQ(keeps_average(rank, kFactorA0), root == 0);
    EXPECT_TRUE(keeps_average(rank, kFactorG0));
    EXPECT_THAT(rank.sent(), IsEmpty());  // there was nothing before
  }
}

TEST(Residence, MovesAnAverageWhenThePlanChanges) {
  LoneRank rank;
  rank.run(0);
  rank.run(1);
  runtime::Residence residence(rank.communicator, rank.bank);
  residence.migrate(runtime::residences_of(plan_with_root(0), rank.order));
  rank.average(0);
  const at::Tensor mean = rank.bank.state(0).factor(FactorSide::kA).average->mean().triu().clone();
  residence.migrate(runtime::residences_of(plan_with_root(1), rank.order));
  EXPECT_THAT(rank.sent(), ElementsAre("running average l0"));
  EXPECT_FALSE(keeps_average(rank, kFactorA0));
  // And back: from an absent rank, whose broadcast is zeros.
  residence.migrate(runtime::residences_of(plan_with_root(std::nullopt), rank.order));
  EXPECT_EQ(rank.sent().size(), 2U);
  ASSERT_TRUE(keeps_average(rank, kFactorA0));
  EXPECT_FALSE(
      torch::equal(rank.bank.state(0).factor(FactorSide::kA).average->mean().triu(), mean));
}

TEST(Residence, MovesBytesNotRoundedNumbers) {
  // A message has the parts in their own types: the triangle of 6 doubles, and a weight.
  LoneRank rank;
  rank.run(0);
  rank.run(1);
  runtime::Residence residence(rank.communicator, rank.bank);
  residence.migrate(runtime::residences_of(plan_with_root(0), rank.order));
  residence.migrate(runtime::residences_of(plan_with_root(std::nullopt), rank.order));
  ASSERT_THAT(rank.sent(), ElementsAre("running average l0"));
  EXPECT_EQ(rank.communicator.traffic().payload.value(), 6 * 8 + 8);
}

}  // namespace
}  // namespace spdkfac
