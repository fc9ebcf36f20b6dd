// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdkfac {
namespace {

using testing::ElementsAre;

TEST(GeometricGrid, DoublesFromEndToEnd) {
  EXPECT_THAT(calibrate::geometric_grid(1024, 16384, 2, 1),
              ElementsAre(1024, 2048, 4096, 8192, 16384));
  EXPECT_EQ(calibrate::geometric_grid(1024, std::int64_t{64} << 20, 2, 1).size(), 17);
}

TEST(GeometricGrid, RoundsToMultiples) {
  // 64·√2ⁿ = 90.5, 128, 181.0, 256, 362.0 → the next multiples of 32.
  EXPECT_THAT(calibrate::geometric_grid(64, 512, 1.4142135623730951, 32),
              ElementsAre(64, 96, 128, 192, 256, 352, 512));
}

TEST(GeometricGrid, BothEndsAreThere) {
  EXPECT_THAT(calibrate::geometric_grid(1000, 1000, 2, 1), ElementsAre(1000));
  EXPECT_THAT(calibrate::geometric_grid(1000, 1001, 2, 1), ElementsAre(1000, 1001));
  EXPECT_THAT(calibrate::geometric_grid(1000, 5000, 2, 1), ElementsAre(1000, 2000, 5000));
}

TEST(GeometricGrid, StepsAreNeverMuchShorter) {
  // 4000 is so near to 4500 that it would say nothing new.
  EXPECT_THAT(calibrate::geometric_grid(1000, 4500, 2, 1), ElementsAre(1000, 2000, 4500));
}

TEST(InverseGrid, HasNeighboursOfLargePowersOfTwo) {
  // √2 apart: 256, 362.0, 512, 724.1, 1024, 1448.2, 2048 in multiples of 32.
  EXPECT_THAT(calibrate::inverse_grid(256, 2048, 1.4142135623730951),
              ElementsAre(256, 352, 480, 512, 544, 736, 992, 1024, 1056, 1440, 2016, 2048));
  EXPECT_THAT(calibrate::inverse_grid(16, 256, 2), ElementsAre(16, 32, 64, 128, 256));
}

}  // namespace
}  // namespace spdkfac
