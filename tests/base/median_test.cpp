// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/median.h"

#include <gtest/gtest.h>

#include "spdkfac/base/check.h"

namespace spdkfac {
namespace {

TEST(Median, OfOddAndEvenCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(Median, OfNothingIsAnError) { EXPECT_THROW(median({}), InternalError); }

}  // namespace
}  // namespace spdkfac
