// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/contention.h"

#include <vector>

#include <gtest/gtest.h>

#include "calibrate/emulated_world.h"
#include "spdkfac/base/check.h"

namespace spdkfac {
namespace {

TEST(RateWhileBusy, CountsOnlyTheBusyTime) {
  // Busy all the time: 1 s of work in 2 s.
  EXPECT_DOUBLE_EQ(calibrate::rate_while_busy(Seconds(1), Seconds(2), Seconds(2)), 0.5);
  // Busy for 1 s, in which 0.5 s of work were done; the rest at full speed.
  EXPECT_DOUBLE_EQ(calibrate::rate_while_busy(Seconds(1), Seconds(1.5), Seconds(1)), 0.5);
  // Faster with messages than without is noise.
  EXPECT_EQ(calibrate::rate_while_busy(Seconds(1), Seconds(0.9), Seconds(0.9)), 1);
  // As little as a cluster file can say.
  EXPECT_EQ(calibrate::rate_while_busy(Seconds(1), Seconds(5), Seconds(1)), 0.01);
  EXPECT_EQ(calibrate::rate_while_busy(Seconds(1), Seconds(1), Seconds(0)), 1);
}

// Messages of an emulated link sleep, but other work on this machine may take any share of its
// time: only the bounds are certain.
TEST(RatesTogether, AreShares) {
  EmulatedLink link = support::emulated_world();
  int advanced = 0;
  const calibrate::Bench bench{link, c10::kCPU, [&] { ++advanced; }};
  const std::vector<plan::Measurement> all_reduce{{1024, Seconds(support::kAlpha)}};
  calibrate::ContentionMeter meter(bench, all_reduce);
  for (int round = 0; round < 3; ++round) meter.round();
  const calibrate::RatesTogether rates = meter.rates();
  for (const double rate : {rates.computation, rates.communication}) {
    EXPECT_GE(rate, 0.01);
    EXPECT_LE(rate, 1);
  }
  EXPECT_EQ(static_cast<std::size_t>(advanced), calibrate::ContentionMeter::samples(3));
}

TEST(ContentionMeter, NeedsARoundBehindTheFirst) {
  EmulatedLink link = support::emulated_world();
  const std::vector<plan::Measurement> all_reduce{{1024, Seconds(support::kAlpha)}};
  calibrate::ContentionMeter meter({link, c10::kCPU}, all_reduce);
  meter.round();
  EXPECT_THROW(meter.rates(), InternalError);
}

}  // namespace
}  // namespace spdkfac
