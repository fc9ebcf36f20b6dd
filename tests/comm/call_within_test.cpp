// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/call_within.h"

#include <future>

#include <gtest/gtest.h>

namespace spdkfac {
namespace {

using std::chrono::milliseconds;

TEST(CallWithin, ReturnsWhatTheCallReturned) {
  const std::optional<int> result = comm::call_within<int>(
      std::chrono::seconds(60), [] { return 7; }, [](int) { FAIL() << "it was in time"; });
  EXPECT_EQ(result, 7);
}

TEST(CallWithin, GivesUpOnACallThatWaitsAndHandsOverALateResult) {
  std::promise<void> peer;
  std::promise<int> late;
  const auto begin = std::chrono::steady_clock::now();
  const std::optional<int> result = comm::call_within<int>(
      milliseconds(50),
      [&] {
        peer.get_future().wait();
        return 8;
      },
      [&](int value) { late.set_value(value); });
  EXPECT_FALSE(result.has_value());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(50));
  peer.set_value();
  EXPECT_EQ(late.get_future().get(), 8);
}

}  // namespace
}  // namespace spdkfac
