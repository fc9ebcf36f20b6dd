// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/block_inverse.h"

#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spdkfac/kfac/inverse_batch.h"
#include "spdkfac/kfac/pivots.h"
#include "spdkfac/kfac/raised_inverse.h"
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
using support::upper;
using support::with_condition;

TEST(BlockInverse, EqualsAnInverseForAnySizeAndLeaf) {
  for (const std::int64_t size : {1, 4, 5, 8, 11, 16, 29}) {
    for (const std::int64_t leaf_size : {1, 2, 4, 8}) {
      at::Tensor matrices = at::stack({with_condition(1, size, 100), with_condition(2, size, 10)});
      const at::Tensor expected = at::linalg_inv(matrices);
      std::vector<std::int64_t> begins;
      kfac::invert_blocks(matrices, leaf_size,
                          at::empty({2 * kfac::block_scratch(size, leaf_size)}, matrices.options()),
                          [&](std::int64_t begin, std::int64_t rows) {
                            begins.push_back(begin);
                            ASSERT_LE(rows, leaf_size);
                            at::Tensor leaf =
                                matrices.narrow(1, begin, rows).narrow(2, begin, rows);
                            const at::Tensor full = leaf.triu() + leaf.triu(1).mT();
                            leaf.copy_(at::linalg_inv(at::linalg_cholesky(full)));
                          });
      EXPECT_TRUE(near_within(upper(matrices), upper(expected), 1e-10)) << size << " " << leaf_size;
      EXPECT_EQ(static_cast<std::int64_t>(begins.size()), (size + leaf_size - 1) / leaf_size);
    }
  }
}

TEST(RaisedInverse, EqualsAnInverseWhereNothingIsRaised) {
  for (const std::int64_t size : {1, 5, 64, 65, 150}) {
    const at::Tensor matrix = with_condition(size, size, 100);
    at::Tensor inverse = matrix.clone();
    EXPECT_EQ(kfac::invert_with_raised_pivots(inverse), kfac::kPivotsFine);
    EXPECT_TRUE(near_within(upper(inverse), upper(at::linalg_inv(matrix)), 1e-10)) << size;
  }
}

// Higham, Accuracy and Stability, 14.3: an inverse by Cholesky is off by a small multiple of
// epsilon times the condition number; one by explicit inverses of blocks, by that of its square,
// which is all of it here.
TEST(RaisedInverse, IsAsExactAsCholeskyForBadConditions) {
  constexpr double kCondition = 1e10;
  for (const std::int64_t size : {65, 130, 257, 320, 3200}) {
    const at::Tensor matrix = with_condition(size, size, kCondition);
    const at::Tensor expected = at::linalg_inv(matrix);
    at::Tensor inverse = matrix.clone();
    EXPECT_EQ(kfac::invert_with_raised_pivots(inverse), kfac::kPivotsFine);
    const at::Tensor bound = 8 * epsilon(at::kDouble) * kCondition * expected.abs().max();
    EXPECT_TRUE(near_within(upper(inverse), upper(expected), bound)) << size;
  }
}

// [[4, 2], [2, 1]]: the second pivot is 1 − 2·2/4 = 0, below the rounding of 1, and becomes 1, as
// if 1 had been added there. The inverse of [[4, 2], [2, 2]] is [[0.5, −0.5], [−0.5, 1]].
TEST(RaisedInverse, AddsTheDiagonalWhereAPivotIsNone) {
  at::Tensor matrix = at::tensor({4., 2., 2., 1.}, at::kDouble).view({2, 2});
  EXPECT_EQ(kfac::invert_with_raised_pivots(matrix), kfac::kPivotsRaised);
  const at::Tensor expected = at::tensor({0.5, -0.5, -0.5, 1.}, at::kDouble).view({2, 2});
  EXPECT_TRUE(near_within(upper(matrix), upper(expected), 1e-15));
}

TEST(RaisedInverse, SaysWhenAMatrixIsNotFinite) {
  for (const auto& [row, column] : {std::pair{0, 0}, {0, 99}, {70, 80}, {99, 99}}) {
    for (const double value :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      at::Tensor matrix = with_condition(1, 100, 10);
      matrix[row][column] = value;
      matrix[column][row] = value;
      EXPECT_EQ(kfac::invert_with_raised_pivots(matrix), kfac::kPivotsNotFinite) << row;
    }
  }
}

// --- InverseBatch: GPUs only ---

class BatchOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!support::on_cuda()) GTEST_SKIP() << "run with SPDKFAC_TEST_DEVICE=cuda";
  }
};

// Groups of one dimension each.
std::vector<at::Tensor> factors_of(at::ScalarType type) {
  std::vector<at::Tensor> factors;
  std::uint64_t seed = 1;
  for (const std::int64_t dim : {1, 3, 64, 65, 100, 128, 129, 192, 300, 700}) {
    for (const std::int64_t groups : {1, 3}) {
      std::vector<at::Tensor> all;
      for (std::int64_t group = 0; group < groups; ++group) {
        all.push_back(with_condition(++seed, dim, 100));
      }
      factors.push_back(poison_lower(to_device(at::stack(all), type)));
    }
  }
  return factors;
}

TEST_F(BatchOnGpu, EqualsInversesInDoublePrecisionAlsoWhenReplayed) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const std::vector<at::Tensor> factors = factors_of(type);
    std::vector<kfac::Inverse> inverses;
    for (const at::Tensor& factor : factors) {
      inverses.emplace_back(FactorShape{factor.size(1), factor.size(0)}, test_options(type));
    }
    std::vector<kfac::InverseBatch::Task> tasks;
    std::int64_t groups = 0;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      tasks.push_back({factors[i], &inverses[i]});
      groups += factors[i].size(0);
    }
    kfac::InverseBatch batch(tasks, Precision::kFp32);
    for (int round = 0; round < 4; ++round) {
      const double damping = 0.5 / (1 << round);
      batch.refresh(at::full({groups}, damping, test_options(type)));
      for (std::size_t i = 0; i < factors.size(); ++i) {
        const std::int64_t dim = factors[i].size(1);
        const at::Tensor half = at::triu(to_host(factors[i]).nan_to_num(0));
        const at::Tensor matrix =
            half + at::triu(half, 1).mT() + damping * at::eye(dim, at::kDouble);
        const at::Tensor expected = at::linalg_inv(matrix);
        const at::Tensor bound =
            20 * epsilon(type) * 100 * expected.abs().amax({1, 2}, /*keepdim=*/true);
        EXPECT_TRUE(near_within(inverses[i].value, expected, bound)) << dim << " round " << round;
        EXPECT_TRUE(at::equal(inverses[i].value, inverses[i].value.mT()));
      }
      EXPECT_EQ(batch.failures().sum().item<std::int64_t>(), 0);
      EXPECT_FALSE(batch.kept().any().item<bool>());
    }
  }
}

// Large products go through pairs of halves then; matrices of very different sizes share a batch.
TEST_F(BatchOnGpu, IsAsExactAsFp32WithSplitProducts) {
  const std::int64_t dim = 1700;
  const at::Tensor matrix = to_device(with_condition(1, dim, 1000), at::kDouble);
  const std::vector<double> sizes = {1, 1e-9, 1e6};
  std::vector<at::Tensor> factors;
  for (const double size : sizes) factors.push_back(matrix * size);
  const at::Tensor factor = at::stack(factors).to(at::kFloat);
  kfac::Inverse inverse({dim, 3}, test_options(at::kFloat));
  kfac::InverseBatch batch({{factor, &inverse}}, Precision::kTf32);
  for (int round = 0; round < 3; ++round) {  // as it is, recorded, replayed
    inverse.value.zero_();
    batch.refresh(at::zeros({3}, test_options(at::kFloat)));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto group = static_cast<std::int64_t>(i);
      // Damping is at least four roundings of the trace.
      const at::Tensor wide = factor[group].to(at::kDouble);
      const at::Tensor least = 4 * epsilon(at::kFloat) * wide.trace();
      const at::Tensor expected = at::linalg_inv(wide + least * at::eye(dim, wide.options()));
      const double bound = 20 * epsilon(at::kFloat) * 1000 * expected.abs().max().item<double>();
      EXPECT_TRUE(near_within(inverse.value[group], to_host(expected), bound)) << sizes[i];
    }
    EXPECT_EQ(batch.failures().sum().item<std::int64_t>(), 0);
  }
}

// The same rules on both devices: what the CPU makes of the factors is the expected value.
TEST_F(BatchOnGpu, RaisesPivotsLikeTheCpu) {
  const std::int64_t dim = 130;
  at::Tensor bad = with_condition(1, dim, 10);
  bad[129][129] = -1;
  const at::Tensor good = with_condition(2, dim, 10);
  const at::Tensor factors = at::stack({bad, good});
  kfac::Inverse inverse({dim, 2}, test_options(at::kDouble));
  kfac::InverseBatch batch({{to_device(factors, at::kDouble), &inverse}}, Precision::kFp32);
  batch.refresh(at::full({2}, 0.5, test_options(at::kDouble)));
  kfac::Inverse expected({dim, 2}, at::TensorOptions(at::kDouble));
  kfac::refresh_inverse(factors, at::full({2}, 0.5, at::kDouble), expected);
  EXPECT_TRUE(near_within(inverse.value, expected.value, 1e-10));
  EXPECT_TRUE(at::equal(to_host(inverse.failures), at::tensor({1., 0.}, at::kDouble)));
  EXPECT_FALSE(inverse.kept.any().item<bool>());
}

TEST_F(BatchOnGpu, AZeroFactorHasNoInverse) {
  kfac::Inverse inverse({70, 1}, test_options(at::kFloat));
  kfac::InverseBatch batch({{at::zeros({1, 70, 70}, test_options(at::kFloat)), &inverse}},
                           Precision::kTf32);
  batch.refresh(at::full({1}, 0.5, test_options(at::kFloat)));
  EXPECT_FALSE(kfac::is_usable(inverse.value).item<bool>());
  EXPECT_FALSE(inverse.kept.item<bool>());
  EXPECT_EQ(inverse.failures.item<int>(), 0);
}

TEST_F(BatchOnGpu, ANanAnywhereIsAFailure) {
  const std::int64_t dim = 200;
  for (const auto& [row, column] : {std::pair{0, 0}, {3, 150}, {199, 199}, {0, 199}, {130, 140}}) {
    at::Tensor matrix = with_condition(1, dim, 10);
    matrix[row][column] = std::numeric_limits<double>::quiet_NaN();
    kfac::Inverse inverse({dim, 1}, test_options(at::kFloat));
    kfac::InverseBatch batch({{to_device(matrix.unsqueeze(0), at::kFloat), &inverse}},
                             Precision::kFp32);
    batch.refresh(at::full({1}, 0.1, test_options(at::kFloat)));
    EXPECT_TRUE(inverse.kept.item<bool>()) << row << " " << column;
    EXPECT_FALSE(kfac::is_usable(inverse.value).item<bool>());
  }
}

}  // namespace
}  // namespace spdkfac
