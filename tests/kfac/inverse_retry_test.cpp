// SPDX-License-Identifier: Apache-2.0
// What happens when a factor cannot be inverted. The CPU retries within a refresh; CUDA, where
// nothing waits for the host, makes one attempt in each refresh.
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spdkfac/kfac/inverse.h"
#include "support/device.h"
#include "support/matrices.h"
#include "support/special_values.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::on_cuda;
using support::same_bits;
using support::test_options;
using support::to_device;
using support::with_condition;
using support::with_eigenvalues;

constexpr std::int64_t kDim = 6;
// A power of two: 10, 100 and 1000 times it are exact in both types.
constexpr double kDamping = 1.0 / 1024;

at::Tensor one_damping(double value, at::ScalarType type = at::kDouble) {
  return at::full({1}, value, test_options(type));
}

at::Tensor good_factor(at::ScalarType type = at::kDouble) {
  return to_device(with_condition(1, kDim, 4).unsqueeze(0), type);
}

// Positive definite from kDamping·10^retries on, and far from it with a tenth of that.
at::Tensor needs_retries(int retries, at::ScalarType type) {
  const double lowest = -3 * kDamping * std::pow(10, retries - 1);
  return to_device(with_eigenvalues(7, {2, 1.8, 1.6, 1.4, 1.2, lowest}).unsqueeze(0), type);
}

at::Tensor hopeless_factor() {
  return to_device(with_eigenvalues(8, {2, 1.8, 1.6, 1.4, 1.2, -100}).unsqueeze(0), at::kDouble);
}

// All attempts of one refresh failed, and the value is as it was.
void expect_kept(const kfac::Inverse& inverse, const at::Tensor& before) {
  EXPECT_TRUE(same_bits(inverse.value, before));
  EXPECT_TRUE(inverse.kept.all().item<bool>());
  const int attempts = on_cuda() ? 1 : 1 + kfac::kInverseRetries;
  EXPECT_EQ(inverse.failures.item<int>(), attempts);
}

class InverseRetry : public ::testing::TestWithParam<int> {};

TEST_P(InverseRetry, SucceedsWithExactlyTheLargerDamping) {
  const int retries = GetParam();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor factor = needs_retries(retries, type);
    kfac::Inverse direct(1, kDim, test_options(type));
    kfac::refresh_inverse(factor, one_damping(kDamping * std::pow(10, retries), type), direct);
    ASSERT_EQ(direct.failures.item<int>(), 0);
    ASSERT_FALSE(direct.kept.item<bool>());

    kfac::Inverse inverse(1, kDim, test_options(type));
    if (on_cuda()) {
      const at::Tensor identity = inverse.value.clone();
      for (int refresh = 0; refresh < retries; ++refresh) {
        kfac::refresh_inverse(factor, one_damping(kDamping, type), inverse);
        expect_kept(inverse, identity);
      }
    }
    kfac::refresh_inverse(factor, one_damping(kDamping, type), inverse);
    EXPECT_TRUE(same_bits(inverse.value, direct.value)) << type;
    EXPECT_FALSE(inverse.kept.item<bool>());
    EXPECT_EQ(inverse.failures.item<int>(), on_cuda() ? 0 : retries);
  }
}

INSTANTIATE_TEST_SUITE_P(Retries, InverseRetry, ::testing::Values(1, 2, 3));

TEST(InverseFailure, FourRetriesAreNotMade) {
  kfac::Inverse inverse(1, kDim, test_options(at::kDouble));
  const at::Tensor identity = inverse.value.clone();
  for (int refresh = 0; refresh < 1 + kfac::kInverseRetries; ++refresh) {
    kfac::refresh_inverse(needs_retries(4, at::kDouble), one_damping(kDamping), inverse);
    expect_kept(inverse, identity);
  }
}

TEST(InverseFailure, RankOneWithoutDampingKeepsThePreviousInverse) {
  // All ones: the second pivot is exactly 1 − 1, and 10·0 is still 0.
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor ones = at::ones({1, kDim, kDim}, test_options(type));
    kfac::Inverse inverse(1, kDim, test_options(type));
    kfac::refresh_inverse(good_factor(type), one_damping(0, type), inverse);
    const at::Tensor before = inverse.value.clone();
    for (int refresh = 0; refresh < 6; ++refresh) {
      kfac::refresh_inverse(ones, one_damping(0, type), inverse);
      expect_kept(inverse, before);
    }
  }
}

TEST(InverseFailure, BeforeTheFirstSuccessKeepsTheIdentity) {
  kfac::Inverse inverse(1, kDim, test_options(at::kDouble));
  kfac::refresh_inverse(hopeless_factor(), one_damping(kDamping), inverse);
  expect_kept(inverse, at::eye(kDim, test_options(at::kDouble)).unsqueeze(0));
}

TEST(InverseFailure, IsForgottenAfterTheNextSuccess) {
  kfac::Inverse inverse(1, kDim, test_options(at::kDouble));
  kfac::Inverse fresh(1, kDim, test_options(at::kDouble));
  kfac::refresh_inverse(hopeless_factor(), one_damping(0), inverse);
  ASSERT_TRUE(inverse.kept.item<bool>());
  // Without damping, so that CUDA's larger one for the next refresh does not show.
  kfac::refresh_inverse(good_factor(), one_damping(0), inverse);
  kfac::refresh_inverse(good_factor(), one_damping(0), fresh);
  EXPECT_TRUE(same_bits(inverse.value, fresh.value));
  EXPECT_FALSE(inverse.kept.item<bool>());
  EXPECT_EQ(inverse.failures.item<int>(), 0);
  // And with damping: nothing is left of the larger one.
  kfac::refresh_inverse(good_factor(), one_damping(kDamping), inverse);
  kfac::refresh_inverse(good_factor(), one_damping(kDamping), fresh);
  EXPECT_TRUE(same_bits(inverse.value, fresh.value));
}

struct Place {
  std::int64_t row;
  std::int64_t column;
};

TEST(InverseFailure, NanInTheFactorKeepsThePreviousInverse) {
  for (const Place place :
       {Place{0, 0}, Place{0, 3}, Place{2, 2}, Place{1, kDim - 1}, Place{kDim - 1, kDim - 1}}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      kfac::Inverse inverse(1, kDim, test_options(type));
      kfac::refresh_inverse(good_factor(type), one_damping(kDamping, type), inverse);
      const at::Tensor before = inverse.value.clone();
      at::Tensor bad = good_factor(type);
      bad[0][place.row][place.column] = kNan;
      bad[0][place.column][place.row] = kNan;
      kfac::refresh_inverse(bad, one_damping(kDamping, type), inverse);
      EXPECT_TRUE(same_bits(inverse.value, before)) << place.row << "," << place.column;
      EXPECT_TRUE(inverse.kept.item<bool>()) << place.row << "," << place.column;
      EXPECT_GT(inverse.failures.item<int>(), 0) << place.row << "," << place.column;
    }
  }
}

TEST(InverseFailure, InfinityInTheFactorKeepsThePreviousInverse) {
  for (const Place place : {Place{0, 0}, Place{0, 3}, Place{2, 2}, Place{kDim - 1, kDim - 1}}) {
    kfac::Inverse inverse(1, kDim, test_options(at::kDouble));
    kfac::refresh_inverse(good_factor(), one_damping(kDamping), inverse);
    const at::Tensor before = inverse.value.clone();
    at::Tensor bad = good_factor();
    bad[0][place.row][place.column] = kInf;
    bad[0][place.column][place.row] = kInf;
    kfac::refresh_inverse(bad, one_damping(kDamping), inverse);
    EXPECT_TRUE(same_bits(inverse.value, before)) << place.row << "," << place.column;
    EXPECT_TRUE(inverse.kept.item<bool>()) << place.row << "," << place.column;
  }
}

TEST(InverseFailure, OneBadGroupDoesNotDisturbTheOthers) {
  const auto group = [](std::uint64_t seed) { return with_condition(seed, kDim, 100); };
  const at::Tensor good = to_device(at::stack({group(1), group(2), group(3)}), at::kDouble);
  const at::Tensor damping = at::full({3}, kDamping, test_options(at::kDouble));
  kfac::Inverse inverse(3, kDim, test_options(at::kDouble));
  kfac::refresh_inverse(good, damping, inverse);
  const at::Tensor before = inverse.value.clone();

  const at::Tensor next = to_device(at::stack({group(4), group(5), group(6)}), at::kDouble);
  kfac::Inverse all_good(3, kDim, test_options(at::kDouble));
  kfac::refresh_inverse(next, damping, all_good);
  at::Tensor one_bad = next.clone();
  one_bad[1].copy_(hopeless_factor()[0]);
  kfac::refresh_inverse(one_bad, damping, inverse);

  for (const std::int64_t fine : {0, 2}) {
    EXPECT_TRUE(same_bits(inverse.value[fine], all_good.value[fine])) << "group " << fine;
    EXPECT_FALSE(inverse.kept[fine].item<bool>()) << "group " << fine;
    EXPECT_EQ(inverse.failures[fine].item<int>(), 0) << "group " << fine;
  }
  EXPECT_TRUE(same_bits(inverse.value[1], before[1]));
  EXPECT_TRUE(inverse.kept[1].item<bool>());
  EXPECT_EQ(inverse.failures[1].item<int>(), on_cuda() ? 1 : 1 + kfac::kInverseRetries);
}

TEST(InverseFailure, GroupsRetryOnTheirOwn) {
  if (on_cuda()) GTEST_SKIP() << "CUDA retries at the next refresh; see InverseRetry";
  std::vector<at::Tensor> factors = {good_factor()};
  for (int retries = 1; retries <= kfac::kInverseRetries; ++retries) {
    factors.push_back(needs_retries(retries, at::kDouble));
  }
  const at::Tensor factor = at::cat(factors);
  kfac::Inverse inverse(4, kDim, test_options(at::kDouble));
  kfac::refresh_inverse(factor, at::full({4}, kDamping, test_options(at::kDouble)), inverse);
  for (std::int64_t group = 0; group < 4; ++group) {
    const double damping = kDamping * std::pow(10, static_cast<double>(group));
    kfac::Inverse direct(1, kDim, test_options(at::kDouble));
    kfac::refresh_inverse(factor.narrow(0, group, 1), one_damping(damping), direct);
    EXPECT_TRUE(same_bits(inverse.value[group], direct.value[0])) << "group " << group;
    EXPECT_EQ(inverse.failures[group].item<int>(), static_cast<int>(group));
    EXPECT_FALSE(inverse.kept[group].item<bool>());
  }
}

}  // namespace
}  // namespace spdkfac
