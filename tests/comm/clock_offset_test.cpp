// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/clock_offset.h"

#include <gtest/gtest.h>

#include "support/world.h"

namespace spdkfac {
namespace {

// A round trip on one host takes far less, even where ranks share a core.
constexpr double kTolerance = 0.1;

TEST(ClockOffset, IsAboutZeroOnOneHost) {
  EXPECT_NEAR(comm::clock_offset(*support::world()).value(), 0, kTolerance);
}

TEST(ClockOffset, FindsAClockThatIsAhead) {
  const auto world = support::world();
  const double ahead = 1000.0 * world->rank();
  const Seconds offset = comm::clock_offset(*world, [&] { return comm::steady_seconds() + ahead; });
  EXPECT_NEAR(offset.value(), ahead, kTolerance);
}

}  // namespace
}  // namespace spdkfac
