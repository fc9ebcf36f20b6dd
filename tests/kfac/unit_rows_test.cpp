// SPDX-License-Identifier: Apache-2.0
// Blocks of two rows, of units with a weight and a bias: sums and inverses.
#include "spdkfac/kfac/unit_rows.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/precondition.h"
#include "support/device.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::test_options;
using support::to_host;

kfac::LayerUse use_of(std::int64_t examples, bool time_first = false) {
  kfac::LayerUse use;
  use.by_example = true;
  use.examples = examples;
  use.time_first = time_first;
  return use;
}

TEST(UnitRows, AddUpForEachExample) {
  const at::Tensor rows = at::arange(12, test_options(at::kDouble)).view({2, 3, 2});
  // Rows (0,1) (2,3) (4,5) and (6,7) (8,9) (10,11).
  EXPECT_TRUE(at::equal(to_host(kfac::sums_of_examples(rows, use_of(2))),
                        at::tensor({6., 9., 24., 27.}, at::kDouble).view({2, 2})));
  EXPECT_TRUE(at::equal(to_host(kfac::sums_of_examples(rows, use_of(3))),
                        at::tensor({6., 8., 10., 12., 14., 16.}, at::kDouble).view({3, 2})));
  EXPECT_EQ(kfac::sums_of_examples(rows, use_of(6)).sizes(), at::IntArrayRef({6, 2}));
  EXPECT_EQ(kfac::sums_of_examples(rows, use_of(1)).sizes(), at::IntArrayRef({1, 2}));
  EXPECT_EQ(kfac::sums_of_examples(rows, use_of(12)).sizes(), at::IntArrayRef({6, 2}));
}

TEST(UnitRows, TakeTheSecondDimensionOfTwoAlikeWhereTimeComesFirst) {
  const at::Tensor rows = at::arange(4, test_options(at::kDouble)).view({2, 2, 1});
  EXPECT_TRUE(at::equal(to_host(kfac::sums_of_examples(rows, use_of(2))),
                        at::tensor({1., 5.}, at::kDouble).view({2, 1})));
  EXPECT_TRUE(at::equal(to_host(kfac::sums_of_examples(rows, use_of(2, true))),
                        at::tensor({2., 4.}, at::kDouble).view({2, 1})));
}

TEST(UnitRows, HaveProductsInBlocks) {
  at::manual_seed(3);
  const at::Tensor rows = at::randn({4, 6}, test_options(at::kDouble));
  at::Tensor sum = at::full({3, 2, 2}, 7, test_options(at::kDouble));
  kfac::add_unit_products(rows, 0.5, sum, /*overwrite=*/true);
  kfac::add_unit_products(rows, 0.25, sum, /*overwrite=*/false);
  const at::Tensor host = to_host(rows);
  const at::Tensor actual = to_host(sum);
  for (std::int64_t unit = 0; unit < 3; ++unit) {
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t j = i; j < 2; ++j) {
        double expected = 0;
        for (std::int64_t row = 0; row < 4; ++row) {
          expected += 0.75 * host[row][2 * unit + i].item<double>() *
                      host[row][2 * unit + j].item<double>();
        }
        EXPECT_NEAR(actual[unit][i][j].item<double>(), expected, 1e-14);
      }
    }
  }
}

// --- inverses ---

const FactorShape kPairs{8, 1, 4};

at::Tensor pairs(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).view({-1, 2, 2}).to(test_options(at::kDouble));
}

at::Tensor damping_of_all(double value) { return at::full({1}, value, test_options(at::kDouble)); }

TEST(PairInverse, IsTheInverseOfEachDampedBlock) {
  // The lower triangles are not meant.
  const at::Tensor factor = pairs({2, 1, 99, 3, 1e-8, 0, 99, 1e8, 5, -4, 99, 4, 0, 0, 99, 0});
  kfac::Inverse inverse(kPairs, test_options(at::kDouble));
  kfac::refresh_inverse(factor, damping_of_all(0.5), inverse);
  const at::Tensor whole = at::triu(to_host(factor)) + at::triu(to_host(factor), 1).mT();
  const at::Tensor expected = at::linalg_inv(whole + 0.5 * at::eye(2, at::kDouble));
  // The damping of the second block is its rounding, if that is more.
  EXPECT_TRUE(at::allclose(to_host(inverse.value), expected, 1e-7, 1e-14));
  EXPECT_FALSE(inverse.failures.any().item<bool>());
  EXPECT_FALSE(inverse.kept.any().item<bool>());
}

TEST(PairInverse, DampsMoreWhatIsNotPositiveDefinite) {
  const at::Tensor factor = pairs({1, 2, 0, 1, 1, 1, 0, 1, -2, 0, 0, 1, 3, 0, 0, 3});
  kfac::Inverse inverse(kPairs, test_options(at::kDouble));
  kfac::refresh_inverse(factor, damping_of_all(0), inverse);
  // The second block is singular, but its rounding is added to it.
  EXPECT_TRUE(at::equal(inverse.failures.cpu(), at::tensor({1, 0, 1, 0}, at::kInt)));
  const at::Tensor value = to_host(inverse.value);
  const at::Tensor extra =
      at::linalg_inv(value) - at::triu(to_host(factor)) - at::triu(to_host(factor), 1).mT();
  for (std::int64_t block = 0; block < 4; ++block) {
    EXPECT_GT(at::linalg_eigvalsh(value[block]).min().item<double>(), 0) << block;
    EXPECT_GE(extra[block].diagonal().min().item<double>(), -1e-9) << block;
    EXPECT_NEAR(extra[block][0][1].item<double>(), 0, 1e-9) << block;
  }
  EXPECT_GT(extra[0].max().item<double>(), 0.5);
}

TEST(PairInverse, KeepsWhatIsNotFiniteOrZeroAltogether) {
  kfac::Inverse inverse(kPairs, test_options(at::kDouble));
  kfac::refresh_inverse(pairs({2, 0, 0, 2, 2, 0, 0, 2, 2, 0, 0, 2, 2, 0, 0, 2}), damping_of_all(0),
                        inverse);
  const at::Tensor before = inverse.value.clone();
  kfac::refresh_inverse(at::zeros({4, 2, 2}, test_options(at::kDouble)), damping_of_all(1),
                        inverse);
  EXPECT_TRUE(at::equal(inverse.value, before));
  EXPECT_FALSE(inverse.kept.any().item<bool>());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  kfac::refresh_inverse(pairs({4, 0, 0, 4, 4, nan, 0, 4, 4, 0, 0, 4, 4, 0, 0, 4}),
                        damping_of_all(0), inverse);
  EXPECT_TRUE(at::equal(inverse.kept.cpu().to(at::kInt), at::tensor({0, 1, 0, 0}, at::kInt)));
  EXPECT_TRUE(at::equal(inverse.value[1], before[1]));
  EXPECT_NEAR(inverse.value[0][0][0].item<double>(), 0.25, 1e-14);  // damped at least by rounding
}

// --- gradients ---

TEST(UnitGradients, GoIntoOneColumnAndBack) {
  const auto options = test_options(at::kDouble);
  const at::Tensor weight = at::tensor({1., 2., 3., 4.}, options).view({2, 2});
  const at::Tensor bias = weight + 10;
  at::Tensor joined = at::empty({1, 8, 1}, options);
  kfac::join_gradient(weight, bias, joined, kfac::WeightLayout::kUnits);
  EXPECT_TRUE(
      at::equal(joined.view({-1}), at::tensor({1., 11., 2., 12., 3., 13., 4., 14.}, options)));
  at::Tensor weight_after = at::empty_like(weight);
  at::Tensor bias_after = at::empty_like(bias);
  kfac::split_gradient(joined, weight_after, bias_after, kfac::WeightLayout::kUnits);
  EXPECT_TRUE(at::equal(weight_after, weight));
  EXPECT_TRUE(at::equal(bias_after, bias));
  kfac::join_gradient(weight, {}, joined, kfac::WeightLayout::kUnits);  // none came to the bias
  EXPECT_TRUE(at::equal(joined.view({-1}), at::tensor({1., 0., 2., 0., 3., 0., 4., 0.}, options)));
  at::Tensor alone = at::empty({1, 4, 1}, options);
  kfac::join_gradient({}, bias, alone, kfac::WeightLayout::kUnits);
  EXPECT_TRUE(at::equal(alone.view({2, 2}), bias));
}

TEST(UnitGradients, AreMultipliedBlockByBlock) {
  at::manual_seed(4);
  const auto options = test_options(at::kDouble);
  const at::Tensor gradient = at::randn({1, 8, 1}, options);
  const at::Tensor inverse_g = at::randn({4, 2, 2}, options);
  const at::Tensor inverse_a = at::full({1, 1, 1}, 0.5, options);
  at::Tensor scratch = at::empty_like(gradient);
  at::Tensor out = at::empty_like(gradient);
  kfac::precondition(gradient, inverse_a, inverse_g, scratch, out);
  const at::Tensor expected =
      0.5 * at::matmul(at::block_diag(to_host(inverse_g).unbind()), to_host(gradient)[0]);
  EXPECT_TRUE(at::allclose(to_host(out)[0], expected, 1e-12, 1e-13));
}

}  // namespace
}  // namespace spdkfac
