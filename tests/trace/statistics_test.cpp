// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/trace/statistics.h"

#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdkfac {
namespace {

// 1, 2, …, count in some order: the value of a sample is its rank.
std::vector<double> ranks(int count) {
  std::vector<double> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), 1);
  std::shuffle(samples.begin(), samples.end(), std::mt19937(7));
  return samples;
}

struct KnownInterval {
  int count;
  double low;
  double high;
};

// From tables of the sign test: the largest k with P(Bin(n, 1/2) < k) <= 0.025. By hand for n = 9:
// (1 + 9)/512 = 0.0195 <= 0.025 < (1 + 9 + 36)/512, so k = 2.
TEST(MedianInterval, IsThatOfTheSignTest) {
  for (const KnownInterval& known :
       {KnownInterval{6, 1, 6}, KnownInterval{8, 1, 8}, KnownInterval{9, 2, 8},
        KnownInterval{10, 2, 9}, KnownInterval{15, 4, 12}, KnownInterval{20, 6, 15},
        KnownInterval{25, 8, 18}, KnownInterval{50, 18, 33}, KnownInterval{100, 40, 61}}) {
    const trace::ConfidenceInterval interval = trace::median_interval(ranks(known.count));
    EXPECT_EQ(interval.low, known.low) << known.count;
    EXPECT_EQ(interval.high, known.high) << known.count;
  }
}

TEST(MedianInterval, OfFewSamplesIsTheirRange) {
  for (int count = 1; count < 6; ++count) {
    const trace::ConfidenceInterval interval = trace::median_interval(ranks(count));
    EXPECT_EQ(interval.low, 1);
    EXPECT_EQ(interval.high, count);
  }
}

// The median of the lognormal distribution here is 1; of 400 intervals at least 95 % hold it, less
// three standard deviations of that share.
TEST(MedianInterval, HoldsTheMedianInNineteenOfTwentyCases) {
  std::mt19937 random(11);
  std::lognormal_distribution<double> draw(0, 1);
  constexpr int kCases = 400;
  int held = 0;
  for (int i = 0; i < kCases; ++i) {
    std::vector<double> samples(20);
    for (double& sample : samples) sample = draw(random);
    const trace::ConfidenceInterval interval = trace::median_interval(samples);
    held += interval.low <= 1 && interval.high >= 1;
  }
  EXPECT_GE(held, kCases * (0.95 - 3 * std::sqrt(0.95 * 0.05 / kCases)));
}

TEST(PairedDifference, SeesWhatTheSpreadOfBothHides) {
  // A slow drift from 100 to 119 in both; the second is always 1 to 2 slower.
  std::vector<double> first;
  std::vector<double> second;
  for (int i = 0; i < 20; ++i) {
    first.push_back(100 + i);
    second.push_back(100 + i + 1 + (i % 2));
  }
  const trace::Difference difference = trace::paired_difference(first, second);
  EXPECT_EQ(difference.median, 1.5);
  EXPECT_EQ(difference.interval.low, 1);
  EXPECT_EQ(difference.interval.high, 2);
  EXPECT_FALSE(difference.none());
}

TEST(PairedDifference, IsNoneWhereTheIntervalSpansZero) {
  const std::vector<double> first = {5, 5, 5, 5, 5, 5, 5, 5};
  const std::vector<double> second = {6, 4, 6, 4, 6, 6, 6, 6};
  EXPECT_EQ(trace::paired_difference(first, second).median, 1);
  EXPECT_TRUE(trace::paired_difference(first, second).none());
  EXPECT_TRUE(trace::paired_difference(first, first).none());
}

TEST(MiddleSample, IsThatOfTheMedian) {
  EXPECT_EQ(trace::middle_sample({7}), 0U);
  EXPECT_EQ(trace::middle_sample({3, 1, 2}), 2U);
}

TEST(MiddleSample, OfTwoInTheMiddleIsTheSmaller) {
  EXPECT_EQ(trace::middle_sample({4, 1, 3, 2}), 3U);  // 2 and 3 are in the middle
  EXPECT_EQ(trace::middle_sample({5, 5}), 0U);
}

}  // namespace
}  // namespace spdkfac
