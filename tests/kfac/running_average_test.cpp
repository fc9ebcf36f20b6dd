// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/running_average.h"

#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/device.h"
#include "support/special_values.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::near_within;
using support::normal;
using support::poison_lower;
using support::same_bits;
using support::test_options;
using support::to_device;
using support::to_host;
using support::upper;

// A handful of products of numbers up to 10 in double precision.
constexpr double kAverageTolerance = 1e-13;

constexpr double kDecay = 0.75;

kfac::RunningAverage average(std::int64_t groups, std::int64_t dim, bool identity = false,
                             at::ScalarType type = at::kDouble) {
  return kfac::RunningAverage({dim, groups}, kDecay, identity, test_options(type));
}

// Symmetric, [groups, dim, dim], on the CPU.
at::Tensor gram(std::uint64_t seed, std::int64_t groups, std::int64_t dim) {
  const at::Tensor rows = normal(seed, {groups, dim, dim + 2});
  return at::matmul(rows, rows.mT());
}

// The sum of ããᵀ over four examples, one of which holds `value` at feature `place`.
at::Tensor gram_with(double value, std::int64_t place, std::int64_t dim) {
  at::Tensor rows = normal(17, {dim, 4});
  rows[place][1] = value;
  // With a zero beside it: ∞·0 is a NaN off the diagonal.
  rows[(place + 1) % dim][1] = 0;
  return at::matmul(rows, rows.t()).unsqueeze(0);
}

TEST(RunningAverage, StartsFromTheFirstFactorThenFollowsTheRecurrence) {
  kfac::RunningAverage mean = average(2, 3);
  EXPECT_EQ(mean.mean().sizes(), at::IntArrayRef({2, 3, 3}));
  EXPECT_EQ(mean.weight().dim(), 0);
  EXPECT_EQ(mean.weight().item<double>(), 1);

  at::Tensor expected;
  for (std::uint64_t step = 0; step < 6; ++step) {
    const at::Tensor sum = gram(step, 2, 3);
    const at::Tensor fresh = 0.5 * sum;
    expected = step == 0 ? fresh : kDecay * expected + (1 - kDecay) * fresh;
    const at::Tensor added = mean.add(to_device(sum, at::kDouble), 0.5);
    EXPECT_EQ(added.dim(), 0);
    EXPECT_EQ(added.scalar_type(), at::kBool);
    EXPECT_TRUE(added.item<bool>());
    EXPECT_TRUE(near_within(upper(mean.mean()), upper(expected), kAverageTolerance))
        << "step " << step;
    EXPECT_EQ(mean.weight().item<double>(), 1 - kDecay);
  }
}

TEST(RunningAverage, FollowsNumbersWorkedOutByHand) {
  kfac::RunningAverage mean({1}, 0.5, false, test_options(at::kFloat));
  const auto add = [&](double value, double scale) {
    mean.add(at::full({1, 1, 1}, value, test_options(at::kFloat)), scale);
    return mean.mean().item<double>();
  };
  EXPECT_EQ(add(8, 1), 8);        // the first
  EXPECT_EQ(add(4, 1), 6);        // 0.5·8 + 0.5·4
  EXPECT_EQ(add(4, 0.5), 4);      // 0.5·6 + 0.5·2
  EXPECT_EQ(add(0, 1), 2);        // 0.5·4 + 0
  EXPECT_EQ(add(2, 0.25), 1.25);  // 0.5·2 + 0.5·0.5
}

TEST(RunningAverage, StartsFromTheIdentityWhenAskedTo) {
  kfac::RunningAverage mean = average(2, 3, true);
  EXPECT_EQ(mean.weight().item<double>(), 1 - kDecay);
  const at::Tensor sum = gram(1, 2, 3);
  EXPECT_TRUE(mean.add(to_device(sum, at::kDouble), 2).item<bool>());
  const at::Tensor expected = kDecay * at::eye(3, at::kDouble) + (1 - kDecay) * 2 * sum;
  EXPECT_TRUE(near_within(upper(mean.mean()), upper(expected), kAverageTolerance));
}

// So that nothing is inverted before there is a factor.
TEST(RunningAverage, IsZeroBeforeAnyFactorUnlessItStartsFromTheIdentity) {
  EXPECT_TRUE(at::equal(to_host(average(2, 3, false).mean()), at::zeros({2, 3, 3}, at::kDouble)));
  EXPECT_TRUE(
      at::equal(to_host(average(2, 3, true).mean()), at::eye(3, at::kDouble).expand({2, 3, 3})));
}

TEST(RunningAverage, DecayZeroKeepsOnlyTheLastFactor) {
  kfac::RunningAverage mean({3}, 0.0, false, test_options(at::kDouble));
  for (std::uint64_t step = 0; step < 3; ++step) {
    const at::Tensor sum = gram(step, 1, 3);
    mean.add(to_device(sum, at::kDouble), 1);
    EXPECT_TRUE(near_within(upper(mean.mean()), upper(sum), kAverageTolerance)) << "step " << step;
  }
}

// Sums come from products that leave the lower triangle undefined.
TEST(RunningAverage, LowerTriangleOfTheSumDoesNotMatter) {
  kfac::RunningAverage mean = average(1, 4);
  const at::Tensor first = gram(1, 1, 4);
  const at::Tensor second = gram(2, 1, 4);
  EXPECT_TRUE(mean.add(to_device(poison_lower(first), at::kDouble), 1).item<bool>());
  EXPECT_TRUE(mean.add(to_device(poison_lower(second), at::kDouble), 1).item<bool>());
  const at::Tensor expected = kDecay * first + (1 - kDecay) * second;
  EXPECT_TRUE(near_within(upper(mean.mean()), upper(expected), kAverageTolerance));
}

TEST(RunningAverage, AddLeavesTheSumAsItWas) {
  kfac::RunningAverage mean = average(1, 4);
  const at::Tensor sum = to_device(gram(1, 1, 4), at::kDouble);
  const at::Tensor before = sum.clone();
  mean.add(sum, 0.5);
  mean.add(sum, 0.5);
  EXPECT_TRUE(at::equal(sum, before));
}

struct BadNumber {
  double value;
  std::int64_t place;
};
void PrintTo(const BadNumber& bad, std::ostream* out) {
  *out << bad.value << " at feature " << bad.place;
}

class RunningAverageBad : public ::testing::TestWithParam<BadNumber> {
 protected:
  static constexpr std::int64_t kDim = 5;
  static at::Tensor bad(at::ScalarType type) {
    return to_device(gram_with(GetParam().value, GetParam().place, kDim), type);
  }
};

TEST_P(RunningAverageBad, LeavesMeanAndWeightBitForBitAndSaysSo) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const bool identity : {false, true}) {
      kfac::RunningAverage mean = average(1, kDim, identity, type);
      mean.add(to_device(gram(3, 1, kDim), type), 1);
      const at::Tensor mean_before = mean.mean().clone();
      const at::Tensor weight_before = mean.weight().clone();
      EXPECT_FALSE(mean.add(bad(type), 0.5).item<bool>());
      EXPECT_TRUE(same_bits(mean.mean(), mean_before));
      EXPECT_TRUE(same_bits(mean.weight(), weight_before));
      EXPECT_TRUE(mean.add(to_device(gram(4, 1, kDim), type), 1).item<bool>());
    }
  }
}

TEST_P(RunningAverageBad, AsTheFirstFactorDoesNotStartTheAverage) {
  kfac::RunningAverage mean = average(1, kDim);
  EXPECT_FALSE(mean.add(bad(at::kDouble), 1).item<bool>());
  EXPECT_EQ(mean.weight().item<double>(), 1);
  EXPECT_TRUE(at::equal(to_host(mean.mean())[0], at::zeros({kDim, kDim}, at::kDouble)));
  // The first good one counts in full.
  const at::Tensor first = gram(5, 1, kDim);
  EXPECT_TRUE(mean.add(to_device(first, at::kDouble), 1).item<bool>());
  EXPECT_TRUE(near_within(upper(mean.mean()), upper(first), kAverageTolerance));
  EXPECT_EQ(mean.weight().item<double>(), 1 - kDecay);
}

TEST_P(RunningAverageBad, InOneGroupLeavesAllGroups) {
  kfac::RunningAverage mean = average(3, kDim);
  mean.add(to_device(gram(6, 3, kDim), at::kDouble), 1);
  const at::Tensor before = mean.mean().clone();
  at::Tensor sum = to_device(gram(7, 3, kDim), at::kDouble);
  sum[1].copy_(bad(at::kDouble)[0]);
  EXPECT_FALSE(mean.add(sum, 1).item<bool>());
  EXPECT_TRUE(same_bits(mean.mean(), before));
}

INSTANTIATE_TEST_SUITE_P(Values, RunningAverageBad,
                         ::testing::Values(BadNumber{kNan, 0}, BadNumber{kNan, 2},
                                           BadNumber{kNan, 4}, BadNumber{kInf, 0},
                                           BadNumber{kInf, 3}, BadNumber{-kInf, 4},
                                           // Its square is infinite in both types.
                                           BadNumber{1e200, 1}));

TEST(RunningAverage, ScaleThatOverflowsIsAnInfinity) {
  kfac::RunningAverage mean = average(1, 2, false, at::kFloat);
  mean.add(at::eye(2, test_options(at::kFloat)).unsqueeze(0), 1);
  const at::Tensor before = mean.mean().clone();
  const at::Tensor large = at::full({1, 2, 2}, 1e38, test_options(at::kFloat));
  EXPECT_FALSE(mean.add(large, 1e3).item<bool>());
  EXPECT_TRUE(same_bits(mean.mean(), before));
  // The other way round it fits: 1e38·1e-30.
  EXPECT_TRUE(mean.add(large, 1e-30).item<bool>());
}

TEST(RunningAverage, RestoredAverageGoesOnBitForBit) {
  kfac::RunningAverage mean = average(2, 3, false, at::kFloat);
  const auto add = [](kfac::RunningAverage& to, std::uint64_t seed) {
    to.add(to_device(gram(seed, 2, 3), at::kFloat), 0.3);
  };
  add(mean, 1);
  add(mean, 2);
  const at::Tensor saved_mean = mean.mean().clone();
  const at::Tensor saved_weight = mean.weight().clone();
  add(mean, 3);
  const at::Tensor later = mean.mean().clone();

  kfac::RunningAverage other = average(2, 3, false, at::kFloat);
  other.restore(saved_mean, saved_weight);
  EXPECT_TRUE(same_bits(other.mean(), saved_mean));
  EXPECT_TRUE(same_bits(other.weight(), saved_weight));
  add(other, 3);
  EXPECT_TRUE(same_bits(other.mean(), later));
  // Twice from the same saved state: what was given is not written.
  mean.restore(saved_mean, saved_weight);
  add(mean, 3);
  EXPECT_TRUE(same_bits(mean.mean(), later));
}

TEST(RunningAverage, RestoredBeforeTheStartStartsFromTheFirstFactor) {
  kfac::RunningAverage mean = average(1, 3);
  const at::Tensor saved_mean = mean.mean().clone();
  const at::Tensor saved_weight = mean.weight().clone();
  mean.add(to_device(gram(1, 1, 3), at::kDouble), 1);
  mean.restore(saved_mean, saved_weight);
  const at::Tensor first = gram(2, 1, 3);
  mean.add(to_device(first, at::kDouble), 1);
  EXPECT_TRUE(near_within(upper(mean.mean()), upper(first), kAverageTolerance));
}

// A checkpoint may hold its tensors on the CPU.
TEST(RunningAverage, RestoreTakesTensorsOfTheCpu) {
  kfac::RunningAverage mean = average(1, 3);
  const at::Tensor saved = gram(1, 1, 3);
  mean.restore(saved, at::full({}, 1 - kDecay, at::kDouble));
  EXPECT_EQ(mean.mean().device(), support::test_device());
  EXPECT_TRUE(same_bits(mean.mean().cpu(), saved));
}

}  // namespace
}  // namespace spdkfac
