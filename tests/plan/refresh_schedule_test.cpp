// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/refresh_schedule.h"

#include <algorithm>
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
  const RefreshSchedule schedule({2, 3}, Refresh::kFixed);
  EXPECT_THAT(steps_with(schedule, false, 0, 7), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(steps_with(schedule, true, 0, 7), ElementsAre(0, 3, 6));
}

TEST(RefreshSchedule, GrowingIntervalsAreATenthOfTheStepsSoFar) {
  const RefreshSchedule schedule({1000, 1000}, Refresh::kGrowing);
  // Every step up to 20, whose tenth is 2; then 22, 24, 26, 28, 30, from which on it is 3.
  EXPECT_THAT(steps_with(schedule, false, 18, 40),
              ElementsAre(18, 19, 20, 22, 24, 26, 28, 30, 33, 36, 39));
  EXPECT_EQ(steps_with(schedule, false, 0, 18).size(), 18);
}

TEST(RefreshSchedule, GrowsNoFurtherThanTheIntervals) {
  const RefreshSchedule schedule({2, 4}, Refresh::kGrowing);
  // Factors reach 2 at step 20, inverses 4 at step 40.
  EXPECT_THAT(steps_with(schedule, false, 60, 67), ElementsAre(60, 62, 64, 66));
  const std::vector<std::int64_t> inverses = steps_with(schedule, true, 100, 120);
  for (std::size_t i = 1; i < inverses.size(); ++i) EXPECT_EQ(inverses[i] - inverses[i - 1], 4);
  EXPECT_GE(inverses.size(), 4);
}

TEST(RefreshSchedule, InversesComeWithFactorsAndDependOnTheStepAlone) {
  RefreshSchedule in_order({7, 20}, Refresh::kGrowing);
  for (std::int64_t step = 0; step < 500; ++step) {
    const RefreshSchedule::Due due = in_order.at(step);
    EXPECT_TRUE(due.factors || !due.inverses) << step;
    RefreshSchedule resumed({7, 20}, Refresh::kGrowing);
    EXPECT_EQ(resumed.at(step), due) << step;
    resumed.at(step + 100);
    EXPECT_EQ(resumed.at(step), due) << "back to " << step;
  }
}

TEST(RefreshSchedule, PartsOfFixedIntervalsAreTheStepsThatRenewFactors) {
  RefreshSchedule schedule({10, 30}, Refresh::kFixed);
  EXPECT_EQ(schedule.part(0), (plan::RefreshPart{0, 3}));
  EXPECT_EQ(schedule.part(10), (plan::RefreshPart{1, 3}));
  EXPECT_EQ(schedule.part(20), (plan::RefreshPart{2, 3}));
  EXPECT_EQ(schedule.part(330), (plan::RefreshPart{0, 3}));
  RefreshSchedule all_at_once({10, 10}, Refresh::kFixed);
  EXPECT_EQ(all_at_once.part(70), (plan::RefreshPart{0, 1}));
}

TEST(RefreshSchedule, PartsOfGrowingIntervalsComeOnceFromOneRefreshToTheNext) {
  RefreshSchedule in_order({7, 21}, Refresh::kGrowing);
  std::vector<plan::RefreshPart> refresh;  // that is under way
  std::int64_t most = 0;
  for (std::int64_t step = 0; step < 500; ++step) {
    const RefreshSchedule::Due due = in_order.at(step);
    if (!due.factors) continue;
    if (due.inverses) {
      for (std::size_t i = 0; i < refresh.size(); ++i) {
        EXPECT_EQ(refresh[i], (plan::RefreshPart{static_cast<std::int64_t>(i),
                                                 static_cast<std::int64_t>(refresh.size())}))
            << "before " << step;
      }
      refresh.clear();
    }
    refresh.push_back(in_order.part(step));
    most = std::max(most, refresh.back().of);
    RefreshSchedule resumed({7, 21}, Refresh::kGrowing);
    EXPECT_EQ(resumed.part(step), refresh.back()) << step;
  }
  EXPECT_EQ(most, 3) << "7 and 21 steps in the end";
}

TEST(RefreshPartCounts, OfFixedIntervalsAreOnceEach) {
  EXPECT_EQ(plan::refresh_part_counts({5, 20}), (plan::RefreshPartCounts{{4, {1, 1, 1, 1}}}));
  EXPECT_EQ(plan::refresh_part_counts({5, 5}), (plan::RefreshPartCounts{{1, {1}}}));
}

TEST(RefreshPartCounts, OfGrowingIntervalsAreThoseOfTheFirstSteps) {
  // Factors in every step, inverses after as many as a tenth of the steps so far: 0 to 20, 22, 24.
  EXPECT_EQ(plan::refresh_part_counts({1, 1000, 25}),
            (plan::RefreshPartCounts{{1, {20}}, {2, {3, 2}}}));
  std::int64_t steps = 0;
  for (const auto& [parts, counts] : plan::refresh_part_counts({10, 100, 5000})) {
    for (const std::int64_t count : counts) steps += count;
  }
  const plan::RefreshCounts whole = plan::refresh_counts({10, 100, 5000});
  EXPECT_EQ(steps, whole.full + whole.factors_only);
}

TEST(RefreshCounts, OfFixedIntervalsAreThoseOfACycle) {
  EXPECT_EQ(plan::refresh_counts({1, 1}), (plan::RefreshCounts{1, 0, 0}));
  EXPECT_EQ(plan::refresh_counts({5, 20}), (plan::RefreshCounts{1, 3, 16}));
  EXPECT_EQ(plan::refresh_counts({5, 20}).steps_per_inverse(), 20);
}

TEST(RefreshCounts, OfGrowingIntervalsAreThoseOfTheFirstSteps) {
  // All of the first 21 steps; then, up to step 39, factors and inverses in 22, 24, 26, 28, 30, 33,
  // 36 and 39.
  EXPECT_EQ(plan::refresh_counts({1000, 1000, 40}), (plan::RefreshCounts{29, 0, 11}));
  // With factors in every step, the others make factors only.
  EXPECT_EQ(plan::refresh_counts({1, 1000, 40}), (plan::RefreshCounts{29, 11, 0}));
  EXPECT_EQ(plan::refresh_counts({10, 100, 1}), (plan::RefreshCounts{1, 0, 0}));
  // In the long run they are as often as the intervals say.
  EXPECT_NEAR(plan::refresh_counts({10, 100, 1'000'000}).steps_per_inverse(), 100, 1);
}

}  // namespace
}  // namespace spdkfac
