// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/inverse.h"

#include <ostream>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/device.h"
#include "support/matrices.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::epsilon;
using support::near_within;
using support::poison_lower;
using support::same_bits;
using support::test_options;
using support::to_device;
using support::to_host;
using support::with_condition;

// A Cholesky inverse is off by a small multiple of epsilon·condition, relative to its largest
// element (Higham, Accuracy and Stability, 14.3; his factor d is not seen in practice).
constexpr double kSlack = 8;

// With at least four roundings of the trace as damping.
at::Tensor inverse_reference(const at::Tensor& factor, const at::Tensor& damping) {
  const at::Tensor matrix = to_host(factor);
  const at::Tensor least = 4 * epsilon(factor.scalar_type()) * matrix.diagonal(0, 1, 2).sum(-1);
  const at::Tensor diagonal =
      at::maximum(to_host(damping), least).view({-1, 1, 1}) * at::eye(matrix.size(1), at::kDouble);
  return at::linalg_inv(matrix + diagonal);
}

at::Tensor inverse_bound(const at::Tensor& expected, double condition, at::ScalarType type) {
  return kSlack * epsilon(type) * condition * expected.abs().amax({1, 2}, true);
}

at::Tensor dampings(const std::vector<double>& values, at::ScalarType type) {
  return to_device(at::tensor(values, at::kDouble), type);
}

// Every group went well.
void expect_clean(const kfac::Inverse& inverse) {
  EXPECT_EQ(inverse.failures.sum().item<std::int64_t>(), 0);
  EXPECT_FALSE(inverse.kept.any().item<bool>());
}

TEST(InverseState, IsNoneBeforeTheFirstRefresh) {
  const kfac::Inverse inverse({4, 3}, test_options(at::kFloat));
  EXPECT_TRUE(at::equal(inverse.value.cpu(), at::zeros({3, 4, 4}, at::kFloat)));
  EXPECT_FALSE(kfac::is_usable(inverse.value).item<bool>());
  EXPECT_EQ(inverse.failures.sizes(), at::IntArrayRef({3}));
  EXPECT_EQ(inverse.failures.scalar_type(), at::kInt);
  EXPECT_EQ(inverse.kept.sizes(), at::IntArrayRef({3}));
  EXPECT_EQ(inverse.kept.scalar_type(), at::kBool);
}

struct InverseCase {
  std::int64_t dim;
  double condition;
  at::ScalarType type;
};
void PrintTo(const InverseCase& c, std::ostream* out) {
  *out << "dimension " << c.dim << " condition " << c.condition << " " << c.type;
}

std::vector<InverseCase> inverse_cases() {
  std::vector<InverseCase> cases;
  for (const std::int64_t dim : {1, 2, 3, 7, 16, 33, 65, 130, 257}) {
    // Well and badly conditioned for each type; past that float has no digits left.
    cases.push_back({dim, 10, at::kFloat});
    cases.push_back({dim, 1e4, at::kFloat});
    cases.push_back({dim, 10, at::kDouble});
    cases.push_back({dim, 1e10, at::kDouble});
  }
  return cases;
}

class InverseOf : public ::testing::TestWithParam<InverseCase> {
 protected:
  const InverseCase& c() const { return GetParam(); }
  at::Tensor factor(std::uint64_t seed = 1) const {
    return to_device(with_condition(seed, c().dim, c().condition).unsqueeze(0), c().type);
  }
};

TEST_P(InverseOf, EqualsAnInverseInDoublePrecisionAndIsSymmetric) {
  const at::Tensor matrix = factor();
  const at::Tensor none = dampings({0}, c().type);
  kfac::Inverse inverse({c().dim, 1}, test_options(c().type));
  kfac::refresh_inverse(matrix, none, inverse);
  const at::Tensor expected = inverse_reference(matrix, none);
  EXPECT_TRUE(
      near_within(inverse.value, expected, inverse_bound(expected, c().condition, c().type)));
  EXPECT_TRUE(at::equal(inverse.value, inverse.value.mT()));
  expect_clean(inverse);
}

TEST_P(InverseOf, EachGroupHasItsOwnDamping) {
  const at::Tensor matrix = at::cat({factor(2), factor(3), factor(4)});
  const at::Tensor damping = dampings({0, 0.5, 0.0625}, c().type);
  kfac::Inverse inverse({c().dim, 3}, test_options(c().type));
  kfac::refresh_inverse(matrix, damping, inverse);
  const at::Tensor expected = inverse_reference(matrix, damping);
  EXPECT_TRUE(
      near_within(inverse.value, expected, inverse_bound(expected, c().condition, c().type)));
  expect_clean(inverse);
}

TEST_P(InverseOf, ReadsTheUpperTriangleOnlyAndLeavesItsArguments) {
  const at::Tensor matrix = factor();
  const at::Tensor poisoned = poison_lower(matrix);
  const at::Tensor before = poisoned.clone();
  const at::Tensor damping = dampings({0.125}, c().type);
  kfac::Inverse inverse({c().dim, 1}, test_options(c().type));
  kfac::Inverse from_poisoned({c().dim, 1}, test_options(c().type));
  kfac::refresh_inverse(matrix, damping, inverse);
  kfac::refresh_inverse(poisoned, damping, from_poisoned);
  EXPECT_TRUE(same_bits(from_poisoned.value, inverse.value));
  EXPECT_TRUE(same_bits(poisoned, before));
  EXPECT_EQ(damping.item<double>(), 0.125);
  expect_clean(from_poisoned);
}

TEST_P(InverseOf, RefreshReplacesWhatWasThere) {
  const at::Tensor damping = dampings({0.25}, c().type);
  kfac::Inverse inverse({c().dim, 1}, test_options(c().type));
  kfac::Inverse fresh({c().dim, 1}, test_options(c().type));
  kfac::refresh_inverse(factor(5), damping, inverse);
  kfac::refresh_inverse(factor(6), damping, inverse);
  kfac::refresh_inverse(factor(6), damping, fresh);
  EXPECT_TRUE(same_bits(inverse.value, fresh.value));
}

INSTANTIATE_TEST_SUITE_P(Matrices, InverseOf, ::testing::ValuesIn(inverse_cases()));

TEST(Inverses, OfADiagonalIsWorkedOutByHand) {
  const at::Tensor factor =
      to_device(at::diag(at::tensor({3.0, 0.0, 15.0}, at::kDouble)).unsqueeze(0), at::kFloat);
  kfac::Inverse inverse({3, 1}, test_options(at::kFloat));
  kfac::refresh_inverse(factor, dampings({1}, at::kFloat), inverse);
  // 1/(3+1), 1/(0+1), 1/(15+1): roots and quotients of powers of two are exact.
  EXPECT_TRUE(
      at::equal(to_host(inverse.value)[0], at::diag(at::tensor({0.25, 1.0, 0.0625}, at::kDouble))));
}

// A factor of few examples: far fewer than its dimension, and damping makes it definite.
TEST(Inverses, OfARankDeficientFactorFollowsTheDamping) {
  const at::Tensor rows = support::normal(1, {50, 3});
  const at::Tensor matrix = at::matmul(rows, rows.t()).unsqueeze(0) / 3;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor factor = to_device(matrix, type);
    const at::Tensor damping = dampings({0.03125}, type);
    kfac::Inverse inverse({50, 1}, test_options(type));
    kfac::refresh_inverse(factor, damping, inverse);
    const at::Tensor expected = inverse_reference(factor, damping);
    // The largest eigenvalue is at most the trace, the smallest is the damping.
    const double condition = matrix[0].trace().item<double>() / 0.03125 + 1;
    EXPECT_TRUE(near_within(inverse.value, expected, inverse_bound(expected, condition, type)));
    expect_clean(inverse);
  }
}

}  // namespace
}  // namespace spdkfac
