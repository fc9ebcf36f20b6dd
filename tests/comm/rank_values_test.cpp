// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/rank_values.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/world.h"

namespace spdkfac {
namespace {

using testing::ElementsAre;

TEST(RankValues, LargestOfRanksIsTakenValueByValue) {
  const auto world = support::world();
  const double rank = world->rank();
  const double last = world->size() - 1;
  EXPECT_THAT(comm::largest_of_ranks(*world, c10::kCPU, {rank, -rank, 0.1}),
              ElementsAre(last, 0, 0.1));
  EXPECT_TRUE(comm::largest_of_ranks(*world, c10::kCPU, {}).empty());
}

TEST(RankValues, TextOfRankZeroIsTheSameEverywhere) {
  const auto world = support::world();
  const std::string own = world->rank() == 0 ? "först, with a zero: " + std::string(1, '\0') : "no";
  EXPECT_EQ(comm::text_of_rank_zero(*world, c10::kCPU, own),
            "först, with a zero: " + std::string(1, '\0'));
  EXPECT_EQ(comm::text_of_rank_zero(*world, c10::kCPU, world->rank() == 0 ? "" : "no"), "");
}

TEST(RankValues, TextsOfRanksMayDifferInLength) {
  const auto world = support::world();
  const auto text = [](int rank) { return std::string(static_cast<std::size_t>(rank), 'x'); };
  const auto texts = comm::texts_of_ranks(*world, c10::kCPU, text(world->rank()));
  ASSERT_EQ(static_cast<int>(texts.size()), world->size());
  for (int rank = 0; rank < world->size(); ++rank) {
    EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text(rank));
  }
}

}  // namespace
}  // namespace spdkfac
