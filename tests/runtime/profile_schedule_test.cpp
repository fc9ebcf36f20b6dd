// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/profile_schedule.h"

#include <string>

#include <gtest/gtest.h>

namespace spdkfac {
namespace {

using runtime::ProfileSchedule;

// T: timed, -: not, P: timed, and plans are made behind it.
std::string schedule(std::int64_t profile_steps, int factor_interval, int steps,
                     bool second_order = true) {
  ProfileSchedule profile(profile_steps, second_order);
  std::string text;
  for (int step = 0; step < steps; ++step) {
    const bool factors = second_order && step % factor_interval == 0;
    const bool timed = profile.times(factors);
    const bool complete = profile.ended(factors);
    text += complete ? 'P' : timed ? 'T' : '-';
  }
  return text;
}

TEST(ProfileSchedule, TimesStepsBehindTheFirst) {
  EXPECT_EQ(schedule(3, 1, 6), "-TTP--");
  EXPECT_EQ(schedule(3, 2, 6), "-TTP--");
  EXPECT_EQ(schedule(0, 1, 4), "----");
}

TEST(ProfileSchedule, WaitsForAStepWithFactors) {
  EXPECT_EQ(schedule(2, 5, 8), "-TT--P--");
  EXPECT_EQ(schedule(3, 4, 6), "-TTTP-");
  EXPECT_EQ(schedule(2, 5, 5, /*second_order=*/false), "-TP--");
}

}  // namespace
}  // namespace spdkfac
