// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/recent_batches.h"

#include <map>

#include <gtest/gtest.h>

namespace spdkfac::runtime {
namespace {

FactorId factor(std::size_t layer) { return {layer, FactorSide::kA}; }

using Batches = RecentBatches<int>;

int get(Batches& batches, const std::vector<FactorId>& ids, int made, bool recorded = false) {
  return batches.get(ids, {}, recorded, [made] { return made; });
}

// Any of 2^6 − 1 sets of six layers may be refreshed. Each layer is in two batches at most, so
// twelve are the most there can be.
TEST(RecentBatches, StayFewHoweverTheSetsChange) {
  Batches batches;
  for (int round = 0; round < 3; ++round) {
    for (unsigned bits = 1; bits < 64; ++bits) {
      std::vector<FactorId> ids;
      for (std::size_t layer = 0; layer < 6; ++layer) {
        if ((bits >> layer) & 1) ids.push_back(factor(layer));
      }
      get(batches, ids, static_cast<int>(bits));
      ASSERT_LE(batches.size(), 12);
    }
  }
}

// The plan of an owner refreshes each factor by itself, step after step.
TEST(RecentBatches, ManySmallSetsStay) {
  Batches batches;
  int made = 0;
  for (int step = 0; step < 3; ++step) {
    for (std::size_t layer = 0; layer < 50; ++layer) {
      batches.get({factor(layer)}, {}, false, [&] { return ++made; });
    }
  }
  EXPECT_EQ(made, 50);
  EXPECT_EQ(batches.size(), 50);
}

TEST(RecentBatches, TheLatestStay) {
  Batches batches;
  EXPECT_EQ(get(batches, {factor(0)}, 1), 1);
  EXPECT_EQ(get(batches, {factor(0), factor(1)}, 2), 2);
  EXPECT_EQ(get(batches, {factor(0)}, 3), 1);  // known, and now the latest
  EXPECT_EQ(get(batches, {factor(0), factor(2)}, 4), 4);
  EXPECT_EQ(get(batches, {factor(0)}, 5), 1);
  EXPECT_EQ(get(batches, {factor(0), factor(1)}, 6), 6);  // made again
}

TEST(RecentBatches, WhatARecordedGraphUsesStays) {
  Batches batches;
  get(batches, {factor(0)}, 1, /*recorded=*/true);
  for (std::size_t other = 1; other < 9; ++other) get(batches, {factor(0), factor(other)}, 2);
  EXPECT_EQ(get(batches, {factor(0)}, 3), 1);
}

TEST(RecentBatches, TensorsThatMovedMakeABatchAgain) {
  Batches batches;
  const int here = 0;
  const int there = 0;
  EXPECT_EQ(batches.get({factor(0)}, {&here}, false, [] { return 1; }), 1);
  EXPECT_EQ(batches.get({factor(0)}, {&there}, false, [] { return 2; }), 2);
  EXPECT_EQ(batches.size(), 1);
}

}  // namespace
}  // namespace spdkfac::runtime
