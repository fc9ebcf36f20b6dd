// SPDX-License-Identifier: Apache-2.0
// What happens when a factor cannot be inverted with its damping, or not at all.
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/precision.h"
#include "support/device.h"
#include "support/matrices.h"
#include "support/special_values.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::same_bits;
using support::test_options;
using support::to_device;
using support::to_host;
using support::with_condition;
using support::with_eigenvalues;

constexpr std::int64_t kDim = 6;
constexpr double kDamping = 1.0 / 1024;

at::Tensor one_damping(double value, at::ScalarType type = at::kDouble) {
  return at::full({1}, value, test_options(type));
}

at::Tensor good_factor(at::ScalarType type = at::kDouble) {
  return to_device(with_condition(1, kDim, 4).unsqueeze(0), type);
}

at::Tensor indefinite_factor(at::ScalarType type = at::kDouble) {
  return to_device(with_eigenvalues(8, {2, 1.8, 1.6, 1.4, 1.2, -100}).unsqueeze(0), type);
}

// The inverse is that of factor + damping + a diagonal that is nowhere negative, and not zero.
void expect_damped_more(const at::Tensor& inverse, const at::Tensor& factor, double damping) {
  const at::Tensor value = to_host(inverse);
  ASSERT_GT(at::linalg_eigvalsh(value).min().item<double>(), 0);
  const std::int64_t dim = factor.size(-1);
  const at::Tensor extra =
      at::linalg_inv(value) - to_host(factor) - damping * at::eye(dim, at::kDouble);
  const double tolerance = 1e-9 * at::linalg_inv(value).abs().max().item<double>();
  const at::Tensor diagonal = extra.diagonal();
  EXPECT_GE(diagonal.min().item<double>(), -tolerance);
  EXPECT_GT(diagonal.max().item<double>(), tolerance);
  EXPECT_LE((extra - at::diag(diagonal)).abs().max().item<double>(), tolerance);
}

TEST(InverseFailure, AnIndefiniteFactorIsDampedMoreAtOnce) {
  kfac::Inverse inverse({kDim, 1}, test_options(at::kDouble));
  kfac::refresh_inverse(indefinite_factor(), one_damping(kDamping), inverse);
  EXPECT_FALSE(inverse.kept.item<bool>());
  EXPECT_EQ(inverse.failures.item<int>(), 1);
  expect_damped_more(inverse.value[0], indefinite_factor()[0], kDamping);
}

// Several leaves of the recursion: the raised pivot lies behind hundreds of good ones.
TEST(InverseFailure, ALargeIndefiniteFactorIsDampedMoreAtOnce) {
  const std::int64_t dim = 300;
  at::Tensor matrix = with_condition(3, dim, 10);
  matrix[200][200] = -1;
  const at::Tensor factor = to_device(matrix.unsqueeze(0), at::kDouble);
  kfac::Inverse inverse({dim, 1}, test_options(at::kDouble));
  kfac::refresh_inverse(factor, one_damping(kDamping), inverse);
  EXPECT_EQ(inverse.failures.item<int>(), 1);
  expect_damped_more(inverse.value[0], factor[0], kDamping);
}

TEST(InverseFailure, RankOneWithoutDampingIsInverted) {
  // All ones: without damping the second pivot is exactly 1 − 1.
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    kfac::Inverse inverse({kDim, 1}, test_options(type));
    kfac::refresh_inverse(at::ones({1, kDim, kDim}, test_options(type)), one_damping(0, type),
                          inverse);
    EXPECT_FALSE(inverse.kept.item<bool>());
    EXPECT_TRUE(kfac::is_usable(inverse.value).item<bool>());
    EXPECT_TRUE(inverse.value.isfinite().all().item<bool>());
  }
}

// As the first batch of eight leaves A of a wide Linear layer: 8 rows, 768 features of a large mean
// and a bias. Products of what tf32 keeps of them are exact, and summed in fp32.
at::Tensor few_rows() {
  at::Tensor rows = support::normal(5, {8, 769}).to(at::kFloat).mul(3).add(20);
  rows.select(1, 768).fill_(1);
  return rounded_to(Precision::kTf32, rows);
}

TEST(InverseFailure, FewRowsWithHardlyAnyDampingAreInvertedAtOnce) {
  const at::Tensor rows = few_rows();
  const at::Tensor factor = to_device(rows.t().mm(rows).div(8).unsqueeze(0), at::kFloat);
  kfac::Inverse inverse({769, 1}, test_options(at::kFloat));
  kfac::refresh_inverse(factor, one_damping(1e-3, at::kFloat), inverse);  // of a trace of 3e5
  EXPECT_EQ(inverse.failures.item<int>(), 0);
  EXPECT_FALSE(inverse.kept.item<bool>());
  EXPECT_GT(at::linalg_eigvalsh(to_host(inverse.value[0])).min().item<double>(), 0);
}

// What sums of the rows themselves made of it: the border of A did not fit its block.
TEST(InverseFailure, AMixtureOfRoundingsIsInvertedInTheSameRefresh) {
  at::Tensor rows = support::normal(5, {8, 769}).to(at::kFloat).mul(3).add(20);
  rows.select(1, 768).fill_(1);
  const at::Tensor rounded = rounded_to(Precision::kTf32, rows);
  at::Tensor factor = rounded.t().mm(rounded).div(8);
  factor.select(1, 768).copy_(rows.sum(0).div(8));
  factor.select(0, 768).copy_(rows.sum(0).div(8));
  ASSERT_LT(at::linalg_eigvalsh(factor.to(at::kDouble)).min().item<double>(), -1e-3);
  kfac::Inverse inverse({769, 1}, test_options(at::kFloat));
  kfac::refresh_inverse(to_device(factor.unsqueeze(0), at::kFloat), one_damping(1e-6, at::kFloat),
                        inverse);
  EXPECT_FALSE(inverse.kept.item<bool>());
  EXPECT_TRUE(kfac::is_usable(inverse.value).item<bool>());
  EXPECT_TRUE(inverse.value.isfinite().all().item<bool>());
}

TEST(InverseFailure, BeforeTheFirstSuccessThereIsNoInverse) {
  kfac::Inverse inverse({kDim, 2}, test_options(at::kDouble));
  EXPECT_FALSE(kfac::is_usable(inverse.value).item<bool>());
  const at::Tensor bad = at::cat({good_factor(), good_factor() * kNan});
  const at::Tensor damping = at::full({2}, kDamping, test_options(at::kDouble));
  kfac::refresh_inverse(bad, damping, inverse);
  EXPECT_FALSE(kfac::is_usable(inverse.value).item<bool>());
  kfac::refresh_inverse(at::cat({good_factor(), good_factor()}), damping, inverse);
  EXPECT_TRUE(kfac::is_usable(inverse.value).item<bool>());
}

TEST(InverseFailure, AZeroFactorHasNoInverse) {
  kfac::Inverse inverse({kDim, 1}, test_options(at::kDouble));
  kfac::refresh_inverse(good_factor() * 0, one_damping(kDamping), inverse);
  EXPECT_FALSE(kfac::is_usable(inverse.value).item<bool>());
  EXPECT_FALSE(inverse.kept.item<bool>());
  EXPECT_EQ(inverse.failures.item<int>(), 0);
}

// Squares of gradients that have vanished on their way through a deep model; with damping as small.
TEST(InverseFailure, AFactorThatHasAllButVanishedHasAFiniteInverse) {
  for (const bool diagonal : {false, true}) {
    for (const double size : {1e-30, 1e-37, 1e-43}) {
      const FactorShape whole{3, 1};
      kfac::Inverse inverse(diagonal ? whole.as_diagonal() : whole, test_options(at::kFloat));
      const at::Tensor ones = diagonal ? at::ones({3, 1, 1}) : at::eye(3).unsqueeze(0);
      kfac::refresh_inverse(to_device(ones * size, at::kFloat), one_damping(0.3 * size, at::kFloat),
                            inverse);
      EXPECT_TRUE(inverse.value.isfinite().all().item<bool>()) << size;
      EXPECT_TRUE(kfac::is_usable(inverse.value).item<bool>()) << size;
      EXPECT_EQ(inverse.failures.sum().item<std::int64_t>(), 0) << size;
    }
  }
}

TEST(InverseFailure, IsForgottenAfterTheNextSuccess) {
  kfac::Inverse inverse({kDim, 1}, test_options(at::kDouble));
  kfac::Inverse fresh({kDim, 1}, test_options(at::kDouble));
  kfac::refresh_inverse(indefinite_factor(), one_damping(kDamping), inverse);
  ASSERT_EQ(inverse.failures.item<int>(), 1);
  kfac::refresh_inverse(good_factor(), one_damping(kDamping), inverse);
  kfac::refresh_inverse(good_factor(), one_damping(kDamping), fresh);
  EXPECT_TRUE(same_bits(inverse.value, fresh.value));
  EXPECT_FALSE(inverse.kept.item<bool>());
  EXPECT_EQ(inverse.failures.item<int>(), 0);
}

struct Place {
  std::int64_t row;
  std::int64_t column;
};

TEST(InverseFailure, NanInTheFactorKeepsThePreviousInverse) {
  for (const Place place :
       {Place{0, 0}, Place{0, 3}, Place{2, 2}, Place{1, kDim - 1}, Place{kDim - 1, kDim - 1}}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      kfac::Inverse inverse({kDim, 1}, test_options(type));
      kfac::refresh_inverse(good_factor(type), one_damping(kDamping, type), inverse);
      const at::Tensor before = inverse.value.clone();
      at::Tensor bad = good_factor(type);
      bad[0][place.row][place.column] = kNan;
      bad[0][place.column][place.row] = kNan;
      kfac::refresh_inverse(bad, one_damping(kDamping, type), inverse);
      EXPECT_TRUE(same_bits(inverse.value, before)) << place.row << "," << place.column;
      EXPECT_TRUE(inverse.kept.item<bool>()) << place.row << "," << place.column;
    }
  }
}

TEST(InverseFailure, InfinityInTheFactorKeepsThePreviousInverse) {
  for (const Place place : {Place{0, 0}, Place{0, 3}, Place{2, 2}, Place{kDim - 1, kDim - 1}}) {
    kfac::Inverse inverse({kDim, 1}, test_options(at::kDouble));
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

TEST(InverseFailure, BadGroupsDoNotDisturbTheOthers) {
  const auto group = [](std::uint64_t seed) { return with_condition(seed, kDim, 100); };
  const at::Tensor good = to_device(at::stack({group(1), group(2), group(3)}), at::kDouble);
  const at::Tensor damping = at::full({3}, kDamping, test_options(at::kDouble));
  kfac::Inverse inverse({kDim, 3}, test_options(at::kDouble));
  kfac::refresh_inverse(good, damping, inverse);
  const at::Tensor before = inverse.value.clone();

  const at::Tensor next = to_device(at::stack({group(4), group(5), group(6)}), at::kDouble);
  kfac::Inverse all_good({kDim, 3}, test_options(at::kDouble));
  kfac::refresh_inverse(next, damping, all_good);
  at::Tensor some_bad = next.clone();
  some_bad[1].fill_(kNan);
  some_bad[2].copy_(indefinite_factor()[0]);
  kfac::refresh_inverse(some_bad, damping, inverse);

  EXPECT_TRUE(same_bits(inverse.value[0], all_good.value[0]));
  EXPECT_TRUE(same_bits(inverse.value[1], before[1]));
  expect_damped_more(inverse.value[2], indefinite_factor()[0], kDamping);
  EXPECT_TRUE(at::equal(to_host(inverse.kept), at::tensor({0., 1., 0.}, at::kDouble)));
  EXPECT_TRUE(at::equal(to_host(inverse.failures), at::tensor({0., 0., 1.}, at::kDouble)));
}

}  // namespace
}  // namespace spdkfac
