// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/learning_rate.h"

#include <cmath>

#include <gtest/gtest.h>

namespace spdkfac::train {
namespace {

TEST(LearningRate, ConstantStays) {
  const LearningRate rate{.base = 0.3, .total_steps = 10};
  EXPECT_EQ(learning_rate_at(rate, 0), 0.3);
  EXPECT_EQ(learning_rate_at(rate, 9), 0.3);
  EXPECT_EQ(learning_rate_at(rate, 1000), 0.3);
}

TEST(LearningRate, WarmupRisesInEqualSteps) {
  const LearningRate rate{.base = 0.8, .warmup_steps = 4, .total_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 1), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 3), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 4), 0.8);
}

TEST(LearningRate, CosineFallsFromTheBaseToNearlyZero) {
  const LearningRate rate{
      .base = 2, .schedule = Schedule::kCosine, .warmup_steps = 2, .total_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 1), 2);
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 2), 2);  // 1 + cos 0
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 6), 1);  // 1 + cos π/2
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 4), 1 + std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 9), 1 + std::cos(7 * std::acos(-1.0) / 8));
  for (std::int64_t step = 3; step < 10; ++step) {
    EXPECT_LT(learning_rate_at(rate, step), learning_rate_at(rate, step - 1));
    EXPECT_GT(learning_rate_at(rate, step), 0);
  }
}

TEST(LearningRate, StepFallsAtHalfAndThreeQuarters) {
  const LearningRate rate{.base = 1, .schedule = Schedule::kStep, .total_steps = 10};
  EXPECT_EQ(learning_rate_at(rate, 4), 1);
  EXPECT_EQ(learning_rate_at(rate, 5), 0.1);
  EXPECT_EQ(learning_rate_at(rate, 7), 0.1);
  EXPECT_EQ(learning_rate_at(rate, 8), 0.01);  // 7.5 rounded up
}

TEST(LearningRate, AWarmupAsLongAsTheRunNeverDividesByZero) {
  const LearningRate rate{
      .base = 1, .schedule = Schedule::kCosine, .warmup_steps = 5, .total_steps = 5};
  EXPECT_EQ(learning_rate_at(rate, 4), 1);
}

}  // namespace
}  // namespace spdkfac::train
