// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/placement_planner.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/plan/factor_placement.h"
#include "spdkfac/plan/planner.h"
#include "support/brute_force.h"
#include "support/models.h"
#include "support/random.h"

namespace spdkfac {
namespace {

using support::affine_costs;
using support::Random;
using support::tiny_model;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kAll = std::nullopt;
using Owner = std::optional<int>;

std::vector<plan::PlacementItem> items_of(const std::vector<double>& weights) {
  std::vector<plan::PlacementItem> items;
  for (const double weight : weights) items.push_back({weight, false});
  return items;
}

plan::Owners owners_of(const std::vector<FactorPlacement>& factors) {
  plan::Owners owners;
  for (const FactorPlacement& factor : factors) owners.push_back(factor.owner);
  return owners;
}

// Inverse d², broadcast 20 + 0.5·d(d+1)/2, for which d ≤ 5 is cheaper to invert everywhere:
// d          9     4     7     4     8     3     6     5
// inverse   81    16    49    16    64     9    36    25
// broadcast 42.5  25    34    25    38    23    30.5  27.5
// CTs by dimension onto three workers: 9 to 0, 8 to 1, 7 to 2; loads 9, 8, 7, so 6 to 2.
const std::vector<double> kDims = {9, 4, 7, 4, 8, 3, 6, 5};
const plan::Owners kByHand = {0, kAll, 2, kAll, 1, kAll, 2, kAll};

ModelSpec four_layers() { return tiny_model({{9, 4}, {7, 4}, {8, 3}, {6, 5}}); }
CostModel square_costs(int world) { return affine_costs(world, 20, 0.5, PowerInverse{1, 2}); }

TEST(PlacementPlanner, AlgorithmOneByHandOnThreeWorkers) {
  std::vector<plan::PlacementItem> items;
  for (const double dim : kDims) items.push_back({dim, dim <= 5});
  EXPECT_EQ(plan::place_heaviest_first(items, 3), kByHand);
}

TEST(PlacementPlanner, AlgorithmOneByHandThroughFactorPlacement) {
  const ModelSpec model = four_layers();
  const CostModel costs = square_costs(3);
  const auto factors =
      plan::place_factors(model, layer_costs(model, costs), costs, preset("spd-kfac"), {});
  EXPECT_EQ(owners_of(factors), kByHand);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    EXPECT_EQ(factors[i].layer, static_cast<int>(i / 2));
    EXPECT_EQ(factors[i].side, i % 2 == 0 ? FactorSide::kA : FactorSide::kG);
    EXPECT_EQ(static_cast<double>(factors[i].dim), kDims[i]);
    EXPECT_FALSE(factors[i].sends_gradient);
  }
}

TEST(PlacementPlanner, AlgorithmOneByHandThroughMakePlan) {
  const Plan plan = make_plan(four_layers(), square_costs(3), 3, preset("spd-kfac"));
  EXPECT_EQ(owners_of(plan.placements), kByHand);
}

TEST(PlacementPlanner, InvertsOnEveryWorkerOnlyWhenThatIsStrictlyCheaper) {
  // Inverse 4² = 16; broadcast of 10 elements: 6 + 10 = 16 is a tie, 6.5 + 10 is dearer.
  const ModelSpec model = tiny_model({{4, 4}});
  PlanOptions options = preset("spd-kfac");
  const CostModel tie = affine_costs(2, 6, 1, PowerInverse{1, 2});
  EXPECT_THAT(owners_of(make_plan(model, tie, 2, options).placements),
              ElementsAre(Owner(0), Owner(1)));
  const CostModel dearer = affine_costs(2, 6.5, 1, PowerInverse{1, 2});
  EXPECT_THAT(owners_of(make_plan(model, dearer, 2, options).placements), Each(Owner(kAll)));
}

TEST(PlacementPlanner, GivenDimensionOverridesTheCostRule) {
  // By cost 9, 7, 8 and 6 have owners; below 8 everywhere leaves 9 and 8.
  const plan::Owners below_eight = {0, kAll, kAll, kAll, 1, kAll, kAll, kAll};
  PlanOptions options = preset("spd-kfac");
  options.nct_below = 8;
  EXPECT_EQ(owners_of(make_plan(four_layers(), square_costs(3), 3, options).placements),
            below_eight);
  CostModel costs = square_costs(3);
  costs.nct_below = 8;
  EXPECT_EQ(owners_of(make_plan(four_layers(), costs, 3, preset("spd-kfac")).placements),
            below_eight);
  // The options' dimension is stronger than the cluster's: below 9 leaves only 9.
  options.nct_below = 9;
  EXPECT_EQ(owners_of(make_plan(four_layers(), costs, 3, options).placements),
            (plan::Owners{0, kAll, kAll, kAll, kAll, kAll, kAll, kAll}));
}

TEST(PlacementPlanner, OneWorkerOwnsEverything) {
  EXPECT_THAT(plan::place_heaviest_first(items_of({3, 1, 2}), 1), Each(Owner(0)));
  EXPECT_THAT(plan::place_sequential(3, 1), Each(Owner(0)));
  EXPECT_THAT(plan::place_blocks(items_of({3, 1, 2}), 1, 1), Each(Owner(0)));
}

TEST(PlacementPlanner, WorkersWithoutTensorsStayIdle) {
  EXPECT_THAT(plan::place_heaviest_first(items_of({1, 2}), 5), ElementsAre(Owner(1), Owner(0)));
  EXPECT_THAT(plan::place_sequential(2, 5), ElementsAre(Owner(0), Owner(1)));
  // Two blocks: block b goes to b·5/2, that is 0 and 2.
  EXPECT_THAT(plan::place_blocks(items_of({1, 2}), 5, 2), ElementsAre(Owner(0), Owner(2)));
}

TEST(PlacementPlanner, NothingToPlaceGivesNoOwners) {
  EXPECT_THAT(plan::place_heaviest_first({}, 3), IsEmpty());
  EXPECT_THAT(plan::place_sequential(0, 3), IsEmpty());
  EXPECT_THAT(plan::place_blocks({}, 3, 3), IsEmpty());
}

TEST(PlacementPlanner, ReplicatedItemsHaveNoOwner) {
  const std::vector<plan::PlacementItem> items(4, plan::PlacementItem{5, true});
  EXPECT_THAT(plan::place_heaviest_first(items, 3), Each(Owner(kAll)));
  EXPECT_THAT(plan::place_blocks(items, 3, 3), Each(Owner(kAll)));
}

TEST(PlacementPlanner, EqualWeightsGoInInputOrderToTheLowestRank) {
  EXPECT_THAT(plan::place_heaviest_first(items_of({4, 4, 4, 4, 4}), 3),
              ElementsAre(Owner(0), Owner(1), Owner(2), Owner(0), Owner(1)));
}

TEST(PlacementPlanner, BalancingByDimensionSquareAndTimeDiffer) {
  // Free broadcasts: all have owners. By dimension and by square 7 goes to 0, both 4 to 1. Then by
  // dimension 7 < 8, so 3 goes to worker 0; by square 49 > 32, so it goes to worker 1.
  const CostTable table({{3, Seconds(1)}, {4, Seconds(5)}, {7, Seconds(5)}});
  const CostModel costs = affine_costs(2, 0, 0, table);
  const ModelSpec model = tiny_model({{7, 4}, {4, 3}});
  PlanOptions options = preset("spd-kfac");
  options.balance_by = BalanceBy::kDimension;
  EXPECT_THAT(owners_of(make_plan(model, costs, 2, options).placements),
              ElementsAre(Owner(0), Owner(1), Owner(1), Owner(0)));
  options.balance_by = BalanceBy::kSquare;
  EXPECT_THAT(owners_of(make_plan(model, costs, 2, options).placements),
              ElementsAre(Owner(0), Owner(1), Owner(1), Owner(1)));
  // By time 5, 5, 5, 1: to 0, to 1, on the tie to 0, to 1.
  options.balance_by = BalanceBy::kTime;
  EXPECT_THAT(owners_of(make_plan(model, costs, 2, options).placements),
              ElementsAre(Owner(0), Owner(1), Owner(0), Owner(1)));
}

TEST(PlacementPlanner, SequentialDealsTensorsInTurnAndReplicatesNothing) {
  EXPECT_THAT(plan::place_sequential(5, 3),
              ElementsAre(Owner(0), Owner(1), Owner(2), Owner(0), Owner(1)));
  const Plan plan = make_plan(four_layers(), square_costs(3), 3, preset("mpd-kfac"));
  EXPECT_THAT(owners_of(plan.placements), ElementsAre(Owner(0), Owner(1), Owner(2), Owner(0),
                                                      Owner(1), Owner(2), Owner(0), Owner(1)));
}

TEST(PlacementPlanner, ReplicatedPlacementHasNoOwners) {
  const Plan plan = make_plan(four_layers(), square_costs(3), 3, preset("d-kfac"));
  EXPECT_EQ(plan.placements.size(), 8U);
  EXPECT_THAT(owners_of(plan.placements), Each(Owner(kAll)));
}

// Longest processing time first never exceeds 4/3 − 1/(3P) of the optimum (Graham 1969).
TEST(PlacementPlanner, HeaviestFirstStaysWithinGrahamsBound) {
  Random random(4711);
  for (int i = 0; i < 500; ++i) {
    const int world = static_cast<int>(random.integer(1, 4));
    std::vector<double> weights;
    for (std::int64_t n = random.integer(1, 7); n > 0; --n) weights.push_back(random.real(0.1, 10));
    const plan::Owners owners = plan::place_heaviest_first(items_of(weights), world);
    std::vector<double> loads(static_cast<std::size_t>(world), 0);
    for (std::size_t item = 0; item < weights.size(); ++item) {
      ASSERT_TRUE(owners[item].has_value());
      loads.at(static_cast<std::size_t>(*owners[item])) += weights[item];
    }
    const double bound =
        (4.0 / 3 - 1.0 / (3 * world)) * support::smallest_maximal_load(weights, world);
    ASSERT_LE(*std::max_element(loads.begin(), loads.end()), bound + 1e-12) << "case " << i;
  }
}

TEST(PlacementPlanner, ReplicatedItemsDoNotChangeWhoOwnsTheRest) {
  Random random(815);
  for (int i = 0; i < 300; ++i) {
    std::vector<plan::PlacementItem> all;
    std::vector<plan::PlacementItem> owned;
    for (std::int64_t n = random.integer(0, 12); n > 0; --n) {
      all.push_back({static_cast<double>(random.integer(1, 9)), random.coin()});
      if (!all.back().replicate) owned.push_back(all.back());
    }
    plan::Owners with = plan::place_heaviest_first(all, 3);
    std::erase(with, Owner(kAll));
    ASSERT_EQ(with, plan::place_heaviest_first(owned, 3)) << "case " << i;
  }
}

TEST(PlacementPlanner, BlocksByHand) {
  // In three blocks 5 | 1 3 | 4; the other two cuts have a block 5 1 or 3 4, heavier than 5.
  // Six workers: blocks 0, 1, 2 go to 0, 2, 4.
  EXPECT_THAT(plan::place_blocks(items_of({5, 1, 3, 4}), 6, 3),
              ElementsAre(Owner(0), Owner(2), Owner(2), Owner(4)));
}

TEST(PlacementPlanner, ReplicatedItemEndsNoBlock) {
  const std::vector<plan::PlacementItem> items = {{2, false}, {100, true}, {2, false}, {4, false}};
  EXPECT_THAT(plan::place_blocks(items, 2, 2),
              ElementsAre(Owner(0), Owner(kAll), Owner(0), Owner(1)));
}

TEST(PlacementPlanner, BlocksAreConsecutiveAndTheHeaviestIsAsLightAsPossible) {
  Random random(99);
  for (int i = 0; i < 2000; ++i) {
    const int world = static_cast<int>(random.integer(1, 12));
    const int blocks = static_cast<int>(random.integer(1, world));
    std::vector<plan::PlacementItem> items;
    std::vector<double> owned;
    for (std::int64_t n = random.integer(1, 9); n > 0; --n) {
      const double weight =
          random.coin() ? random.real(0.1, 9) : static_cast<double>(random.integer(1, 4));
      items.push_back({weight, random.integer(0, 4) == 0});
      if (!items.back().replicate) owned.push_back(weight);
    }
    const plan::Owners owners = plan::place_blocks(items, world, blocks);
    ASSERT_EQ(owners.size(), items.size());
    std::vector<int> order;     // distinct owners as they come
    std::vector<double> loads;  // of their blocks
    for (std::size_t item = 0; item < items.size(); ++item) {
      ASSERT_EQ(owners[item].has_value(), !items[item].replicate) << "case " << i;
      if (!owners[item]) continue;
      if (order.empty() || order.back() != *owners[item]) {
        order.push_back(*owners[item]);
        loads.push_back(0);
      }
      loads.back() += items[item].weight;
    }
    if (owned.empty()) continue;
    ASSERT_LE(order.size(), static_cast<std::size_t>(blocks)) << "case " << i;
    for (std::size_t b = 0; b < order.size(); ++b) {
      // Also says that no owner comes twice.
      ASSERT_EQ(order[b], static_cast<int>(b) * world / static_cast<int>(order.size()))
          << "case " << i << ", block " << b;
    }
    ASSERT_NEAR(*std::max_element(loads.begin(), loads.end()),
                support::smallest_maximal_block(owned, blocks), 1e-9)
        << "case " << i;
  }
}

}  // namespace
}  // namespace spdkfac
