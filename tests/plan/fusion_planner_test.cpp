// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/fusion_planner.h"

#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/brute_force.h"
#include "support/fusion_cases.h"
#include "support/models.h"
#include "support/random.h"

namespace spdkfac {

void PrintTo(const plan::MessageRange& range, std::ostream* out) {
  *out << "[" << range.begin << "," << range.end << ")";
}
void PrintTo(const plan::QueuedRange& queued, std::ostream* out) {
  *out << "queue " << queued.queue << " ";
  PrintTo(queued.range, out);
}

namespace {

using support::affine_costs;
using support::evaluate;
using support::FusionCase;
using support::FusionFamily;
using support::Partition;
using support::PartitionCost;
using support::Random;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Sums of up to ten terms of size 100 in another order: far below, and any real difference above.
constexpr double kTolerance = 1e-9;

struct ReadySize {
  double ready;
  std::int64_t elements;
};

std::vector<plan::FusionItem> items_of(const std::vector<ReadySize>& list) {
  std::vector<plan::FusionItem> items;
  for (const ReadySize& entry : list)
    items.push_back({Seconds(entry.ready), entry.elements, 1, {}});
  return items;
}

plan::FusionRule rule_of(Fusion fusion, std::int64_t threshold_bytes = 64 << 20) {
  return {fusion, Bytes(threshold_bytes)};
}

Partition fused(const std::vector<plan::FusionItem>& items, Fusion fusion, const CostModel& costs) {
  return plan::fuse(items, rule_of(fusion), costs);
}

double end_of(const std::vector<plan::FusionItem>& items, const Partition& messages,
              const CostModel& costs) {
  return plan::finish_time(items, messages, costs).value();
}

const std::vector<plan::FusionItem>& eight_items() {
  static const auto items =
      items_of({{1, 2}, {2, 3}, {6, 1}, {7, 4}, {11, 2}, {12, 1}, {20, 5}, {21, 1}});
  return items;
}

TEST(FusionPlanner, NothingToSendGivesNoMessages) {
  const CostModel costs = affine_costs(2, 2, 1);
  for (const Fusion fusion :
       {Fusion::kNone, Fusion::kBucket, Fusion::kThreshold, Fusion::kGreedy, Fusion::kOptimal}) {
    EXPECT_THAT(fused({}, fusion, costs), IsEmpty());
  }
}

TEST(FusionPlanner, OneItemIsOneMessage) {
  const CostModel costs = affine_costs(2, 2, 1);
  const auto items = items_of({{3, 5}});
  for (const Fusion fusion :
       {Fusion::kNone, Fusion::kBucket, Fusion::kThreshold, Fusion::kGreedy, Fusion::kOptimal}) {
    EXPECT_THAT(fused(items, fusion, costs), ElementsAre(plan::MessageRange{0, 1}));
  }
  // Ready at 3, then 2 + 5·1.
  EXPECT_DOUBLE_EQ(end_of(items, {{0, 1}}, costs), 10);
}

TEST(FusionPlanner, MessageTimeFollowsTheRouteAndCountsTensors) {
  CostModel costs = affine_costs(2, 0, 0);
  costs.all_reduce = CollectiveCost(Seconds(2), Seconds(0.5), Seconds(0.25));
  costs.reduce = CollectiveCost(Seconds(1), Seconds(0.25), Seconds(0.125));
  const Route to_owner{CollectiveOp::kReduce, 1};
  // 2 + 0.5·8 + 0.25·3 and 1 + 0.25·8 + 0.125·3.
  EXPECT_DOUBLE_EQ(plan::message_time(costs, Route{}, 8, 3).value(), 6.75);
  EXPECT_DOUBLE_EQ(plan::message_time(costs, to_owner, 8, 3).value(), 3.375);
}

TEST(FusionPlanner, TransferStartsWhenChannelIsFreeAndLastMemberIsReady) {
  const CostModel costs = affine_costs(2, 2, 1);
  const auto items = items_of({{0, 1}, {5, 3}});
  const plan::Transfer waits_for_member = plan::transfer(items, {0, 2}, Seconds(1), costs);
  EXPECT_DOUBLE_EQ(waits_for_member.start.value(), 5);
  EXPECT_DOUBLE_EQ(waits_for_member.finish.value(), 5 + 2 + 4);
  const plan::Transfer waits_for_channel = plan::transfer(items, {0, 2}, Seconds(7), costs);
  EXPECT_DOUBLE_EQ(waits_for_channel.start.value(), 7);
  EXPECT_EQ(waits_for_channel.range, (plan::MessageRange{0, 2}));
}

TEST(FusionPlanner, GreedyIsNotOptimalOnThreeItems) {
  const CostModel costs = affine_costs(2, 2, 1);
  const auto items = items_of({{0, 1}, {1, 1}, {3, 1}});
  // Greedy: 1 < 0+2 joins, the message now starts at 1; 3 < 1+2 does not hold. {0,1}: 1 to 5,
  // {2}: 5 to 8. Optimum: {0}: 0 to 3, {1,2}: 3 to 7.
  const Partition greedy = fused(items, Fusion::kGreedy, costs);
  EXPECT_THAT(greedy, ElementsAre(plan::MessageRange{0, 2}, plan::MessageRange{2, 3}));
  EXPECT_DOUBLE_EQ(end_of(items, greedy, costs), 8);
  const Partition optimal = fused(items, Fusion::kOptimal, costs);
  EXPECT_THAT(optimal, ElementsAre(plan::MessageRange{0, 1}, plan::MessageRange{1, 3}));
  EXPECT_DOUBLE_EQ(end_of(items, optimal, costs), 7);
}

TEST(FusionPlanner, NoFusionGreedyAndOptimalOnEightItems) {
  const CostModel costs = affine_costs(2, 3, 1);
  const auto& items = eight_items();
  // None: starts at 1, then the channel is never idle: 1 + 8·3 + 19 = 44.
  const Partition none = fused(items, Fusion::kNone, costs);
  EXPECT_EQ(none.size(), 8U);
  EXPECT_DOUBLE_EQ(end_of(items, none, costs), 44);
  // Greedy: {0,1} 2 to 10 (6 < 2+3 fails); {2..5} starts at 12, to 23 (20 < 12+3 fails);
  // {6,7} 23 to 32.
  const Partition greedy = fused(items, Fusion::kGreedy, costs);
  EXPECT_THAT(greedy, ElementsAre(plan::MessageRange{0, 2}, plan::MessageRange{2, 6},
                                  plan::MessageRange{6, 8}));
  EXPECT_DOUBLE_EQ(end_of(items, greedy, costs), 32);
  // Optimum: {0,1} 2 to 10, {2,3,4} 11 to 21, {5,6,7} 21 to 31.
  const Partition optimal = fused(items, Fusion::kOptimal, costs);
  EXPECT_THAT(optimal, ElementsAre(plan::MessageRange{0, 2}, plan::MessageRange{2, 5},
                                   plan::MessageRange{5, 8}));
  EXPECT_DOUBLE_EQ(end_of(items, optimal, costs), 31);
}

TEST(FusionPlanner, GreedyDoesNotMergeOnATie) {
  const CostModel costs = affine_costs(2, 2, 1);
  // The open message starts at 1, so an item joins iff it is ready before 3.
  EXPECT_EQ(fused(items_of({{1, 1}, {3, 1}}), Fusion::kGreedy, costs).size(), 2U);
  EXPECT_EQ(fused(items_of({{1, 1}, {2.75, 1}}), Fusion::kGreedy, costs).size(), 1U);
}

TEST(FusionPlanner, GreedyCountsStartFromTheLastMemberSoFar) {
  const CostModel costs = affine_costs(2, 2, 1);
  // 1.5 < 0+2 joins and moves the start to 1.5; 3 < 1.5+2 joins too.
  EXPECT_THAT(fused(items_of({{0, 1}, {1.5, 1}, {3, 1}}), Fusion::kGreedy, costs),
              ElementsAre(plan::MessageRange{0, 3}));
}

TEST(FusionPlanner, GreedyWaitsForABusyChannel) {
  const CostModel costs = affine_costs(2, 2, 1);
  const auto items = items_of({{0, 1}, {5, 1}});
  // The channel is free at 4: 5 < 4+2.
  const plan::Transfer message =
      plan::next_message(items, 0, rule_of(Fusion::kGreedy), Seconds(4), costs);
  EXPECT_EQ(message.range, (plan::MessageRange{0, 2}));
  EXPECT_DOUBLE_EQ(message.start.value(), 5);
}

TEST(FusionPlanner, GreedyTakesTheFirstEntryOfATableAsStartup) {
  CostModel costs = affine_costs(2, 0, 0);
  costs.all_reduce = CollectiveCost(CostTable({{10, Seconds(2)}, {20, Seconds(30)}}));
  EXPECT_EQ(fused(items_of({{0, 20}, {1.75, 20}}), Fusion::kGreedy, costs).size(), 1U);
  EXPECT_EQ(fused(items_of({{0, 20}, {2.25, 20}}), Fusion::kGreedy, costs).size(), 2U);
}

TEST(FusionPlanner, BucketFillsToItsBytesWhateverIsReady) {
  const CostModel costs = affine_costs(2, 2, 1);
  const auto items = items_of({{0, 2}, {100, 1}, {200, 1}, {300, 9}, {400, 3}});
  // 12 bytes hold 3 elements: 2+1, then 1 (1+9 is too much), 9 alone although it is too large, 3.
  EXPECT_THAT(plan::fuse(items, rule_of(Fusion::kBucket, 12), costs),
              ElementsAre(plan::MessageRange{0, 2}, plan::MessageRange{2, 3},
                          plan::MessageRange{3, 4}, plan::MessageRange{4, 5}));
  // One byte less and only two elements fit.
  EXPECT_THAT(plan::fuse(items, rule_of(Fusion::kBucket, 11), costs),
              ElementsAre(plan::MessageRange{0, 1}, plan::MessageRange{1, 3},
                          plan::MessageRange{3, 4}, plan::MessageRange{4, 5}));
}

TEST(FusionPlanner, ThresholdTakesWhatIsReadyWhenTheChannelIsFree) {
  const CostModel costs = affine_costs(2, 2, 1);
  const auto items = items_of({{0, 1}, {1, 1}, {3, 1}, {4, 1}, {20, 1}, {20, 1}, {20.5, 1}});
  // {0} 0 to 3; at 3 items 1 and 2 are ready (item 2 just then): 3 to 7; {3} 7 to 10; the channel
  // idles until 20, then takes both that become ready together, to 24; {6}.
  EXPECT_THAT(
      plan::fuse(items, rule_of(Fusion::kThreshold), costs),
      ElementsAre(plan::MessageRange{0, 1}, plan::MessageRange{1, 3}, plan::MessageRange{3, 4},
                  plan::MessageRange{4, 6}, plan::MessageRange{6, 7}));
}

TEST(FusionPlanner, ThresholdStopsAtItsBytesButTakesAtLeastOne) {
  const CostModel costs = affine_costs(2, 2, 1);
  const auto items = items_of({{0, 5}, {0, 2}, {0, 2}, {0, 1}, {0, 1}});
  // 16 bytes hold 4 elements: 5 alone although it is too large; 2+2; 1+1. In order: the small
  // items do not overtake.
  EXPECT_THAT(
      plan::fuse(items, rule_of(Fusion::kThreshold, 16), costs),
      ElementsAre(plan::MessageRange{0, 1}, plan::MessageRange{1, 3}, plan::MessageRange{3, 5}));
  EXPECT_THAT(plan::fuse(items, rule_of(Fusion::kThreshold, 15), costs),
              ElementsAre(plan::MessageRange{0, 1}, plan::MessageRange{1, 2},
                          plan::MessageRange{2, 4}, plan::MessageRange{4, 5}));
}

TEST(FusionPlanner, NoRuleCrossesAChangeOfRoute) {
  const CostModel costs = affine_costs(2, 10, 0.1);
  auto items = items_of({{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}});
  items[1].route = {CollectiveOp::kReduce, 0};
  items[2].route = {CollectiveOp::kReduce, 0};
  items[3].route = {CollectiveOp::kReduce, 1};  // another root is another route
  for (const Fusion fusion :
       {Fusion::kBucket, Fusion::kThreshold, Fusion::kGreedy, Fusion::kOptimal}) {
    EXPECT_THAT(fused(items, fusion, costs),
                ElementsAre(plan::MessageRange{0, 1}, plan::MessageRange{1, 3},
                            plan::MessageRange{3, 4}, plan::MessageRange{4, 5}));
  }
}

TEST(FusionPlanner, MergedQueuesTakeTurnsByStartOfTheirNextMessage) {
  const CostModel costs = affine_costs(2, 1, 1);
  const std::vector<plan::FusionQueue> queues = {
      {items_of({{0, 2}, {1, 1}, {9, 1}}), rule_of(Fusion::kNone)},
      {items_of({{1, 1}, {2, 1}, {5, 3}}), rule_of(Fusion::kThreshold)}};
  // Queue 0 starts at 0, queue 1 could at 1: queue 0, 0 to 3. At 3 both could start: the lower
  // queue, 3 to 5. At 5 queue 1 has all of its items ready, queue 0 waits until 9: 5 to 11.
  // Then the last of queue 0, 11 to 13.
  Seconds channel_free{0};
  EXPECT_THAT(plan::merge_queues(queues, costs, channel_free),
              ElementsAre(plan::QueuedRange{0, {0, 1}}, plan::QueuedRange{0, {1, 2}},
                          plan::QueuedRange{1, {0, 3}}, plan::QueuedRange{0, {2, 3}}));
  EXPECT_DOUBLE_EQ(channel_free.value(), 13);
}

TEST(FusionPlanner, MergedQueueThatWaitsForItsLastMemberLetsTheOtherGoFirst) {
  const CostModel costs = affine_costs(2, 1, 1);
  const std::vector<plan::FusionQueue> queues = {
      {items_of({{0, 1}, {0.5, 1}}), rule_of(Fusion::kGreedy)},
      {items_of({{0.25, 1}}), rule_of(Fusion::kNone)}};
  // Queue 0 would send both at 0.5 (0.5 < 0+1), queue 1 starts at 0.25, to 2.25; then 2.25 + 3.
  Seconds channel_free{0};
  EXPECT_THAT(plan::merge_queues(queues, costs, channel_free),
              ElementsAre(plan::QueuedRange{1, {0, 1}}, plan::QueuedRange{0, {0, 2}}));
  EXPECT_DOUBLE_EQ(channel_free.value(), 5.25);
}

TEST(FusionPlanner, MergedQueuesStartFromTheGivenChannelTime) {
  const CostModel costs = affine_costs(2, 1, 1);
  const std::vector<plan::FusionQueue> queues = {
      {items_of({{0, 1}, {3, 1}}), rule_of(Fusion::kNone)}, {{}, rule_of(Fusion::kNone)}};
  // Not before 10: 10 to 12, 12 to 14.
  Seconds channel_free{10};
  EXPECT_EQ(plan::merge_queues(queues, costs, channel_free).size(), 2U);
  EXPECT_DOUBLE_EQ(channel_free.value(), 14);
}

TEST(FusionPlanner, FinishTimeSlowsComputationWhileTheChannelIsBusy) {
  CostModel costs = affine_costs(2, 2, 1);
  costs.overheads.compute_rate_under_communication = 0.5;
  // {0} 0 to 4. Work until 3 is done at half speed until 4 (2 of it), then at full speed: at 5.
  // {1} 5 to 8.
  const auto items = items_of({{0, 2}, {3, 1}});
  EXPECT_DOUBLE_EQ(end_of(items, {{0, 1}, {1, 2}}, costs), 8);
}

// Consecutive, complete, and within one route each.
bool is_partition(const Partition& messages, const std::vector<plan::FusionItem>& items) {
  std::size_t next = 0;
  for (const plan::MessageRange& range : messages) {
    if (range.begin != next || range.end <= range.begin || range.end > items.size()) return false;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (!(items[i].route == items[range.begin].route)) return false;
    }
    next = range.end;
  }
  return next == items.size();
}

class FusionPlannerRandom : public ::testing::TestWithParam<FusionFamily> {
 protected:
  static constexpr int kCases = 3000;
};

TEST_P(FusionPlannerRandom, OptimalEqualsExhaustiveSearch) {
  Random random(20210701);
  for (int i = 0; i < kCases; ++i) {
    const FusionCase c = support::random_fusion_case(random, GetParam(), 1, 10);
    const Partition optimal =
        plan::fuse(c.items, rule_of(Fusion::kOptimal), c.costs, Seconds(c.channel_free));
    ASSERT_TRUE(is_partition(optimal, c.items)) << "case " << i;
    const PartitionCost found = evaluate(c.items, optimal, c.costs, c.channel_free);
    const PartitionCost best = support::best_partition(c.items, c.costs, c.channel_free);
    ASSERT_NEAR(found.end, best.end, kTolerance) << "case " << i;
    ASSERT_NEAR(found.busy, best.busy, kTolerance) << "case " << i << ": ends are equal";
  }
}

// More than 64 items take a short cut: a rough plan first bounds the search.
TEST_P(FusionPlannerRandom, OptimalEqualsPlainDynamicProgramOnManyItems) {
  Random random(20210704);
  for (int i = 0; i < 60; ++i) {
    const FusionCase c = support::random_fusion_case(random, GetParam(), 60, 150);
    const Partition optimal =
        plan::fuse(c.items, rule_of(Fusion::kOptimal), c.costs, Seconds(c.channel_free));
    ASSERT_TRUE(is_partition(optimal, c.items)) << "case " << i;
    // Ends are up to some thousand seconds.
    ASSERT_NEAR(evaluate(c.items, optimal, c.costs, c.channel_free).end,
                support::best_end_of_many(c.items, c.costs, c.channel_free), 1e3 * kTolerance)
        << "case " << i;
  }
}

TEST_P(FusionPlannerRandom, OtherRulesAreNeverBetterThanOptimal) {
  Random random(20210702);
  for (int i = 0; i < kCases; ++i) {
    const FusionCase c = support::random_fusion_case(random, GetParam(), 1, 10);
    const Seconds channel_free(c.channel_free);
    const Partition optimal = plan::fuse(c.items, rule_of(Fusion::kOptimal), c.costs, channel_free);
    const double best = evaluate(c.items, optimal, c.costs, c.channel_free).end;
    for (const Fusion fusion :
         {Fusion::kNone, Fusion::kBucket, Fusion::kThreshold, Fusion::kGreedy}) {
      const Partition other = plan::fuse(c.items, rule_of(fusion, 60), c.costs, channel_free);
      ASSERT_TRUE(is_partition(other, c.items)) << "case " << i;
      ASSERT_GE(evaluate(c.items, other, c.costs, c.channel_free).end, best - kTolerance)
          << "case " << i << ", " << name_of(fusion_names(), fusion);
    }
  }
}

TEST_P(FusionPlannerRandom, FinishTimeEqualsWalkingAlongTheChannel) {
  Random random(20210703);
  for (int i = 0; i < kCases / 10; ++i) {
    const FusionCase c = support::random_fusion_case(random, GetParam(), 1, 10);
    for (const Partition& messages : support::all_partitions(c.items)) {
      ASSERT_NEAR(plan::finish_time(c.items, messages, c.costs, Seconds(c.channel_free)).value(),
                  evaluate(c.items, messages, c.costs, c.channel_free).end, kTolerance)
          << "case " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FusionPlannerRandom,
                         ::testing::Values(FusionFamily{"Affine", false, false, false},
                                           FusionFamily{"Table", true, false, false},
                                           FusionFamily{"AffineRoutes", false, true, false},
                                           FusionFamily{"TableRoutes", true, true, false},
                                           FusionFamily{"Slowed", false, false, true},
                                           FusionFamily{"SlowedTableRoutes", true, true, true}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace spdkfac
