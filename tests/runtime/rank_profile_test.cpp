// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/rank_profile.h"

#include <gtest/gtest.h>

namespace spdkfac {
namespace {

// Two layers. By the means of ranks that do the same, the passes that are measured take
// 2 (forward of the second layer) + 2 + 4 = 8 s.
runtime::RankProfile rank_with_steps(
    std::vector<std::array<Seconds, runtime::RankProfile::kParts>> steps) {
  LayerTimes first{Seconds(1), Seconds(2), Seconds(0.5), Seconds(0.25)};
  LayerTimes second{Seconds(2), Seconds(4), Seconds(0), Seconds(0)};
  return {{first, second}, std::move(steps)};
}

std::array<Seconds, runtime::RankProfile::kParts> parts(double passes, double inverses,
                                                        double preconditioning) {
  return {Seconds(passes), Seconds(inverses), Seconds(preconditioning)};
}

TEST(JoinedTimes, PassesTakeAsLongAsTheSlowestRankInTheMedianStep) {
  // 8 and 8, 8 and 12, 10 and 8: 1, 1.5 and 1.25 times the 8 s.
  const auto times =
      runtime::joined_times({rank_with_steps({parts(8, 0, 0), parts(8, 0, 0), parts(10, 0, 0)}),
                             rank_with_steps({parts(8, 0, 0), parts(12, 0, 0), parts(8, 0, 0)})});
  EXPECT_EQ(times[0].forward, Seconds(1.25));
  EXPECT_EQ(times[1].backward, Seconds(5));
  EXPECT_EQ(times[0].factor_a, Seconds(0.625));
  EXPECT_FALSE(times[0].inverse_a.has_value());
  EXPECT_FALSE(times[0].precondition.has_value());
}

TEST(JoinedTimes, ARankWithMoreToInvertIsNotSlow) {
  runtime::RankProfile one = rank_with_steps({parts(8, 4, 0), parts(8, 4, 0), parts(8, 4, 0)});
  runtime::RankProfile other = rank_with_steps({parts(8, 2, 0), parts(8, 3, 0), parts(8, 2, 0)});
  one.layers[0].inverse_a = Seconds(4);
  other.layers[0].inverse_g = Seconds(2);
  const auto times = runtime::joined_times({one, other});
  EXPECT_EQ(times[0].inverse_a, Seconds(4));
  EXPECT_EQ(times[0].inverse_g, Seconds(2));
  EXPECT_FALSE(times[1].inverse_a.has_value());
}

TEST(JoinedTimes, WhatAllDoTakesTheSlowerOnesTime) {
  runtime::RankProfile fast = rank_with_steps({parts(8, 0, 1), parts(8, 0, 1)});
  runtime::RankProfile slow = rank_with_steps({parts(8, 0, 3), parts(8, 0, 3)});
  fast.layers[1].precondition = Seconds(1);
  slow.layers[1].precondition = Seconds(3);
  EXPECT_EQ(runtime::joined_times({fast, slow})[1].precondition, Seconds(3));
}

// With intervals some steps invert nothing: they say nothing about inverses.
TEST(JoinedTimes, StepsWithoutAPartDoNotCountForIt) {
  runtime::RankProfile one = rank_with_steps({parts(8, 6, 0), parts(8, 0, 0), parts(8, 0, 0)});
  runtime::RankProfile other = rank_with_steps({parts(8, 2, 0), parts(8, 0, 0), parts(8, 0, 0)});
  one.layers[0].inverse_a = Seconds(6);
  other.layers[0].inverse_a = Seconds(2);
  EXPECT_EQ(runtime::joined_times({one, other})[0].inverse_a,
            Seconds(6));  // 4 by the mean, 1.5 times
}

TEST(SlownessOfSteps, IsWhatEachRankTookInEachStepAgainstTheMeans) {
  runtime::RankProfile one = rank_with_steps({parts(8, 4, 1), parts(16, 6, 0)});
  runtime::RankProfile other = rank_with_steps({parts(12, 0, 3), parts(4, 0, 0)});
  one.layers[0].inverse_a = Seconds(4);
  one.layers[1].precondition = Seconds(1);
  other.layers[1].precondition = Seconds(3);
  const auto steps = runtime::slowness_of_steps({one, other});
  ASSERT_EQ(steps.size(), 2U);
  ASSERT_EQ(steps[0].size(), 2U);
  ASSERT_EQ(steps[1].size(), 2U);
  // Of 8 s of passes, 4 s of inverses on one rank alone, 2 s of preconditioning in the mean.
  EXPECT_EQ(steps[0][0].passes, 1);
  EXPECT_EQ(steps[0][1].passes, 1.5);
  EXPECT_EQ(steps[1][0].passes, 2);
  EXPECT_EQ(steps[1][1].passes, 0.5);
  EXPECT_EQ(steps[0][0].inverses, 1);
  EXPECT_EQ(steps[1][0].inverses, 1.5);
  EXPECT_EQ(steps[0][0].preconditioning, 0.5);
  EXPECT_EQ(steps[0][1].preconditioning, 1.5);
  // What was not done is as long as the means say.
  EXPECT_EQ(steps[0][1].inverses, 1);
  EXPECT_EQ(steps[1][0].preconditioning, 1);
}

}  // namespace
}  // namespace spdkfac
