// SPDX-License-Identifier: Apache-2.0
// Factors in blocks and diagonals, against whole matrices masked to blocks.
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kfac/factor_cases.h"
#include "spdkfac/kfac/factor.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/precondition.h"
#include "spdkfac/kfac/running_average.h"
#include "spdkfac/kfac/symmetric.h"
#include "support/kronecker.h"
#include "support/split_factors.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

TEST(FactorShape, SplitsIntoBlocksOfOneDimension) {
  const FactorShape whole{10, 3};
  EXPECT_EQ(whole.dim(), 10);
  EXPECT_EQ(whole.packed(), 3 * 55);
  EXPECT_FALSE(whole.is_split());
  // 10 rows in blocks of at most 4: three of 4 rows, of which the last has 2.
  const FactorShape blocks = whole.in_blocks_of(4);
  EXPECT_EQ(blocks.blocks, 3);
  EXPECT_EQ(blocks.dim(), 4);
  EXPECT_EQ(blocks.matrices(), 9);
  EXPECT_EQ(blocks.rows(1), 4);
  EXPECT_EQ(blocks.rows(2), 2);
  EXPECT_EQ(blocks.packed(), 9 * 10);
  EXPECT_EQ(whole.in_blocks_of(9).dim(), 5);  // two of equal dimension
  EXPECT_EQ(whole.in_blocks_of(10), whole);
  EXPECT_TRUE(whole.as_diagonal().is_diagonal());
  EXPECT_EQ(whole.as_diagonal().packed(), 30);
  for (std::int64_t size = 1; size <= 40; ++size) {
    for (std::int64_t largest = 1; largest <= size; ++largest) {
      const FactorShape shape = FactorShape{size, 1}.in_blocks_of(largest);
      EXPECT_TRUE(shape.is_valid()) << size << " in " << largest;
      EXPECT_LE(shape.dim(), largest);
    }
  }
  EXPECT_FALSE((FactorShape{10, 1, 7}.is_valid()));  // 7 blocks of 2 would be 14 rows
}

class SplitSums : public ::testing::TestWithParam<FactorCase> {
 protected:
  const FactorCase& c() const { return GetParam(); }

  // `add` is called as the library's functions are; `whole` is what the whole sum is.
  template <class Add>
  void expect_blocks(const at::Tensor& whole, const Add& add) const {
    const at::Tensor bound = factor_bound(whole, 2 * c().examples() * c().positions(), c().type);
    for (const FactorShape& shape : splits_of(whole.size(1), whole.size(0))) {
      SCOPED_TRACE(shape.blocks);
      const std::int64_t dim = shape.dim();
      at::Tensor sum = at::zeros({shape.matrices(), dim, dim}, test_options(c().type));
      for (const Bytes memory : {Bytes(1), Bytes(700), kDefaultPatchMemory}) {
        add(memory, sum, /*overwrite=*/true);
        EXPECT_TRUE(
            near_within(upper(sum), upper(blocks_of(whole, shape)), blocks_of(bound, shape)));
        add(memory, sum, /*overwrite=*/false);
        EXPECT_TRUE(near_within(upper(sum), 2 * upper(blocks_of(whole, shape)),
                                2 * blocks_of(bound, shape)));
      }
    }
  }
};

TEST_P(SplitSums, InputProductsAreTheBlocksOfTheWholeSum) {
  const at::Tensor input = c().make_input();
  const at::Tensor whole =
      0.5 * (c().conv ? conv_input_sums(input, *c().conv, c().bias) : linear_sums(input, c().bias));
  expect_blocks(whole, [&](Bytes memory, at::Tensor& sum, bool overwrite) {
    kfac::add_input_products(input, c().use(), 0.5, memory, sum, overwrite);
  });
}

TEST_P(SplitSums, GradientProductsAreTheBlocksOfTheWholeSum) {
  const at::Tensor gradient = c().make_gradient();
  const at::Tensor whole = 0.5 * (c().conv ? conv_gradient_sums(gradient, c().conv->groups)
                                           : linear_sums(gradient, false));
  expect_blocks(whole, [&](Bytes memory, at::Tensor& sum, bool overwrite) {
    kfac::add_gradient_products(gradient, c().use(), 0.5, memory, sum, overwrite);
  });
}

INSTANTIATE_TEST_SUITE_P(Layers, SplitSums, ::testing::ValuesIn(known_factor_cases()));

// Small enough to write A⊗G out; of one group and of three.
std::vector<FactorCase> layers_to_split() {
  return {{{7, 10}, std::nullopt, 7, true},
          {{4, 3, 8}, std::nullopt, 6, false},
          {{3, 2, 6, 5}, kfac::ConvGeometry{{3, 3}, {1, 1}, {1, 1}}, 5, true},
          {{3, 6, 5, 5}, kfac::ConvGeometry{{2, 2}, {1, 1}, {0, 0}, {1, 1}, 3}, 9, true},
          {{2, 3, 5, 5}, kfac::ConvGeometry{{3, 3}, {1, 1}, {1, 1}, {1, 1}, 3}, 3, false}};
}

class SplitLayer : public ::testing::TestWithParam<FactorCase> {};

double mean_of_diagonal(const at::Tensor& factor) {
  return factor.trace().item<double>() / static_cast<double>(factor.size(0));
}

// What each mode adds, from the means of the whole factors of a group.
std::pair<double, double> dampings_by_definition(const at::Tensor& a, const at::Tensor& g,
                                                 Damping mode, double gamma) {
  const double mean_a = mean_of_diagonal(a);
  const double mean_g = mean_of_diagonal(g);
  const double root = std::sqrt(gamma);
  if (mode == Damping::kPlain) return {gamma, gamma};
  if (mode == Damping::kRelative) return {root * mean_a, root * mean_g};
  const double pi = std::sqrt(mean_a / mean_g);
  return {root * pi, root / pi};
}

TEST_P(SplitLayer, SolvesWithTheKroneckerProductOfMaskedFactors) {
  constexpr double kDampingOfSplits = 0.01;
  const FactorCase& c = GetParam();
  const at::Tensor whole_a =
      input_factor_reference(normal(1, c.input), c.conv, c.bias, Convention::kKfc, c.positions());
  const at::Tensor whole_g = gradient_factor_reference(normal(2, c.output()) / c.examples(), c.conv,
                                                       Convention::kKfc, c.positions());
  const std::int64_t groups = whole_a.size(0);
  const at::Tensor gradient = normal(3, {groups, whole_g.size(1), whole_a.size(1)});
  for (const FactorShape& a : splits_of(whole_a.size(1), groups)) {
    for (const FactorShape& g : splits_of(whole_g.size(1), groups)) {
      for (const Damping mode : {Damping::kPlain, Damping::kPi, Damping::kRelative}) {
        SCOPED_TRACE(fmt::format("{} and {} blocks, damping {}", a.blocks, g.blocks,
                                 damping_names()[static_cast<std::size_t>(mode)]));
        const at::Tensor factor_a = to_device(blocks_of(whole_a, a), at::kDouble);
        const at::Tensor factor_g = to_device(blocks_of(whole_g, g), at::kDouble);
        const auto [damping_a, damping_g] =
            kfac::damping_of_means(kfac::mean_diagonal({factor_a, a}),
                                   kfac::mean_diagonal({factor_g, g}), mode, kDampingOfSplits);
        kfac::Inverse inverse_a(a, factor_a.options());
        kfac::Inverse inverse_g(g, factor_g.options());
        kfac::refresh_inverse(factor_a, damping_a, inverse_a);
        kfac::refresh_inverse(factor_g, damping_g, inverse_g);
        EXPECT_TRUE(kfac::is_usable(inverse_a.value).item<bool>());
        const at::Tensor from = to_device(gradient, at::kDouble);
        const at::Tensor scratch = at::full_like(from, std::nan(""));
        const at::Tensor out = scratch.clone();
        kfac::precondition(from, inverse_a.value, inverse_g.value, scratch, out);
        for (std::int64_t group = 0; group < groups; ++group) {
          const auto [add_a, add_g] =
              dampings_by_definition(whole_a[group], whole_g[group], mode, kDampingOfSplits);
          const at::Tensor damped_a =
              masked(whole_a, a)[group] + add_a * at::eye(a.size, at::kDouble);
          const at::Tensor damped_g =
              masked(whole_g, g)[group] + add_g * at::eye(g.size, at::kDouble);
          const at::Tensor solution = at::linalg_solve(
              kronecker(damped_a, damped_g), stacked_columns(gradient[group]).unsqueeze(1));
          const at::Tensor expected = unstacked_columns(solution.squeeze(1), g.size);
          EXPECT_TRUE(
              near_within(out[group], expected, 1e-8 * expected.abs().max().item<double>()));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, SplitLayer, ::testing::ValuesIn(layers_to_split()));

// A factor of these rows in two groups, as a diagonal.
struct TwoDiagonals {
  explicit TwoDiagonals(const std::vector<double>& values)
      : shape{static_cast<std::int64_t>(values.size()) / 2, 2,
              static_cast<std::int64_t>(values.size()) / 2},
        factor(to_device(at::tensor(values, at::kDouble).view({-1, 1, 1}), at::kDouble)),
        inverse(shape, factor.options()) {}
  void refresh(double damping) {
    kfac::refresh_inverse(factor, at::full({2}, damping, factor.options()), inverse);
  }
  std::vector<double> values() const {
    const at::Tensor host = to_host(inverse.value);
    return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
  }
  FactorShape shape;
  at::Tensor factor;
  kfac::Inverse inverse;
};

TEST(DiagonalInverse, IsAReciprocalAlsoWhereTheFactorIsZero) {
  TwoDiagonals two({1, 0, 3, 0, 0, 7});
  two.refresh(0.5);
  EXPECT_EQ(two.values(), (std::vector<double>{1 / 1.5, 2, 1 / 3.5, 2, 2, 1 / 7.5}));
  EXPECT_EQ(two.inverse.failures.sum().item<std::int64_t>(), 0);
}

TEST(DiagonalInverse, AGroupOfZerosAndOneThatIsNotFiniteKeepTheirs) {
  TwoDiagonals two({1, 3, 1, 3});
  two.refresh(1);
  const std::vector<double> before = two.values();
  two.factor.narrow(0, 0, 2).zero_();
  two.factor[3] = std::numeric_limits<double>::infinity();
  two.refresh(5);
  EXPECT_EQ(two.values(), before);
  EXPECT_EQ(two.inverse.kept.sum().item<std::int64_t>(), 1);
  EXPECT_TRUE(two.inverse.kept[1].item<bool>());
  EXPECT_EQ(two.inverse.failures.sum().item<std::int64_t>(), 0);
}

TEST(DiagonalInverse, WhatIsNotPositiveIsDampedMoreAndFlagged) {
  TwoDiagonals two({1, -3, 4, 2});
  two.refresh(0);
  // As for whole matrices: the size of a negative pivot is used.
  const std::vector<double> found = two.values();
  EXPECT_NEAR(found[1], 1.0 / 3, 1e-12);
  EXPECT_NEAR(found[0], 1, 1e-12);
  EXPECT_EQ(two.inverse.failures[0].item<std::int64_t>(), 1);
  EXPECT_EQ(two.inverse.failures[1].item<std::int64_t>(), 0);
}

TEST(BlockInverse, AZeroBlockOfAFactorIsDampedLikeTheRest) {
  const FactorShape shape{4, 1, 2};
  at::Tensor factor = at::zeros({2, 2, 2}, test_options(at::kDouble));
  factor[0].copy_(at::eye(2, factor.options()) * 3);
  kfac::Inverse inverse(shape, factor.options());
  kfac::refresh_inverse(factor, at::full({1}, 0.25, factor.options()), inverse);
  EXPECT_NEAR(to_host(inverse.value)[0][0][0].item<double>(), 1 / 3.25, 1e-12);
  EXPECT_NEAR(to_host(inverse.value)[1][1][1].item<double>(), 4, 1e-12);
  EXPECT_TRUE(kfac::is_usable(inverse.value).item<bool>());
  // What a batch of inverses has left out.
  const at::Tensor expected = inverse.value.clone();
  for (const double before : {0.0, 7.0}) {  // none, and that of a block that was not zero
    inverse.value[1].fill_(before);
    kfac::invert_zero_blocks(factor, at::full({1}, 0.25, factor.options()), inverse);
    EXPECT_TRUE(near_within(inverse.value, expected, 1e-12)) << before;
  }
}

TEST(BlockInverse, AZeroBlockWithoutDampingHasTheIdentity) {
  at::Tensor factor = at::zeros({2, 2, 2}, test_options(at::kDouble));
  factor[0].copy_(at::eye(2, factor.options()) * 4);
  kfac::Inverse inverse({4, 1, 2}, factor.options());
  const at::Tensor none = at::zeros({1}, factor.options());
  kfac::refresh_inverse(factor, none, inverse);
  const at::Tensor expected = at::stack({at::eye(2) / 4, at::eye(2)}).to(factor.options());
  EXPECT_TRUE(near_within(inverse.value, expected, 1e-12));
  inverse.value[1].zero_();
  kfac::invert_zero_blocks(factor, none, inverse);
  EXPECT_TRUE(near_within(inverse.value, expected, 1e-12));
}

// Padding stays zero from an identity start to the packed triangle, so the mean of the diagonal is
// that of the rows.
TEST(SplitAverage, NeverHasPadding) {
  const FactorShape shape = FactorShape{7, 2}.in_blocks_of(3);
  kfac::RunningAverage average(shape, 0.75, /*identity=*/true, test_options(at::kDouble));
  const at::Tensor eye = at::eye(7, at::kDouble).expand({2, 7, 7});
  EXPECT_TRUE(at::equal(to_host(average.mean()), blocks_of(eye, shape)));
  EXPECT_TRUE(
      at::equal(to_host(kfac::mean_diagonal({average.mean(), shape})), at::ones({2}, at::kDouble)));
  const at::Tensor products = normal(9, {2, 7, 7});
  const at::Tensor whole = at::bmm(products, products.mT());
  const at::Tensor sum = to_device(blocks_of(whole, shape), at::kDouble);
  EXPECT_TRUE(average.add(sum, 2).item<bool>());
  const at::Tensor expected = 0.75 * eye + 0.25 * 2 * whole;
  EXPECT_TRUE(near_within(upper(average.mean()), upper(blocks_of(expected, shape)), 1e-12));
  at::Tensor packed = at::empty({shape.packed()}, test_options(at::kDouble));
  kfac::pack_upper(sum, packed);
  kfac::RunningAverage other(shape, 0.75, /*identity=*/true, test_options(at::kDouble));
  kfac::RunningAverage::add_all({{&other, packed, 2, /*packed=*/true}});
  EXPECT_TRUE(at::equal(upper(other.mean()), upper(average.mean())));
}

}  // namespace
}  // namespace spdkfac
