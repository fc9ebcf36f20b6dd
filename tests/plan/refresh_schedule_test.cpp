// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/refresh_schedule.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdkfac {
namespace {

using plan::RefreshSchedule;
using ::testing::ElementsAre;

std::vector<std::int64_t> steps_with(RefreshSchedule schedule, bool inverses, std::int64_t first,
                                     std::int64_t end) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = first; step < end; ++step) {
    const RefreshSchedule::Due due = schedule.at(step);
    if (inverses ? due.inverses : due.factors) steps.push_back(step);
  }
  return steps;
}

TEST(RefreshSchedule, FixedIntervalsAreMultiples) {
  const RefreshSchedule schedule({2, 3}, false);
  EXPECT_THAT(steps_with(schedule, false, 0, 7), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(steps_with(schedule, true, 0, 7), ElementsAre(0, 3, 6));
}

TEST(RefreshSchedule, GrowingIntervalsAreATenthOfTheStepsSoFar) {
  const RefreshSchedule schedule({1000, 1000}, true);
  // Every step up to 20, whose tenth is 2; then 22, 24, 26, 28, 30, from which on it is 3.
  EXPECT_THAT(steps_with(schedule, false, 18, 40),
              ElementsAre(18, 19, 20, 22, 24, 26, 28, 30, 33, 36, 39));
  EXPECT_EQ(steps_with(schedule, false, 0, 18).size(), 18);
}

TEST(RefreshSchedule, GrowsNoFurtherThanTheIntervals) {
  const RefreshSchedule schedule({2, 4}, true);
  // Factors reach 2 at step 20, inverses 4 at step 40.
  EXPECT_THAT(steps_with(schedule, false, 60, 67), ElementsAre(60, 62, 64, 66));
  const std::vector<std::int64_t> inverses = steps_with(schedule, true, 100, 120);
  for (std::size_t i = 1; i < inverses.size(); ++i) EXPECT_EQ(inverses[i] - inverses[i - 1], 4);
  EXPECT_GE(inverses.size(), 4);
}

TEST(RefreshSchedule, InversesComeWithFactorsAndDependOnTheStepAlone) {
  RefreshSchedule in_order({7, 20}, true);
  for (std::int64_t step = 0; step < 500; ++step) {
    const RefreshSchedule::Due due = in_order.at(step);
    EXPECT_TRUE(due.factors || !due.inverses) << step;
    RefreshSchedule resumed({7, 20}, true);
    EXPECT_EQ(resumed.at(step), due) << step;
    resumed.at(step + 100);
    EXPECT_EQ(resumed.at(step), due) << "back to " << step;
  }
}

}  // namespace
}  // namespace spdkfac
