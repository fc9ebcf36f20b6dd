// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/factor.h"
#include "support/device.h"
#include "support/kfac_reference.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::factor_bound;
using support::near_within;
using support::normal;
using support::poison_lower;
using support::test_options;
using support::to_device;
using support::to_host;
using support::upper;
using support::whole;
using ::testing::ElementsAre;

const kfac::ConvGeometry kThreeByThree{{3, 3}, {1, 1}, {1, 1}};

kfac::LayerUse conv_use(std::int64_t examples, std::int64_t positions, bool bias = false,
                        const kfac::ConvGeometry& conv = kThreeByThree) {
  return {conv, bias, examples, positions};
}
kfac::LayerUse linear_use(std::int64_t examples, std::int64_t positions, bool bias = false) {
  return {std::nullopt, bias, examples, positions};
}

TEST(FactorScales, ConventionsHaveTheirNamesInOrder) {
  EXPECT_THAT(convention_names(), ElementsAre("kfc", "paper", "kfac-pytorch"));
}

// The product of both parts is the scale in the table of factor.h; for G with the gradient of the
// mean loss, g = N·∇, so with another N².
TEST(FactorScales, PartsMultiplyToTheConvention) {
  // Three divisions and multiplications more or less.
  constexpr double kRelative = 1e-14;
  for (const auto convention : {Convention::kKfc, Convention::kPaper, Convention::kKfacPytorch}) {
    for (const bool conv : {true, false}) {
      for (const std::int64_t n : {1, 3, 32}) {
        for (const std::int64_t s : {1, 7, 3136}) {
          const kfac::LayerUse use = conv ? conv_use(n, s) : linear_use(n, s);
          const auto examples = static_cast<double>(n);
          const auto positions = static_cast<double>(s);
          const double a = support::input_scale_reference(convention, conv, examples, positions);
          const double g = examples * examples *
                           support::gradient_scale_reference(convention, conv, examples, positions);
          EXPECT_NEAR(kfac::position_scale(convention, FactorSide::kA, use) *
                          kfac::example_scale(convention, FactorSide::kA, {n, n}),
                      a, a * kRelative);
          EXPECT_NEAR(kfac::position_scale(convention, FactorSide::kG, use) *
                          kfac::example_scale(convention, FactorSide::kG, {n, n}),
                      g, g * kRelative);
        }
      }
    }
  }
}

// ∇ of a mean over all is 1/terms of what ∇ of their sum is.
TEST(FactorScales, ASumLossIsTheMeanLossTimesItsTerms) {
  for (const auto convention : {Convention::kKfc, Convention::kPaper, Convention::kKfacPytorch}) {
    const kfac::ExampleCount mean{4, 6, LossReduction::kMean};
    const kfac::ExampleCount sum{4, 6, LossReduction::kSum};
    EXPECT_DOUBLE_EQ(kfac::example_scale(convention, FactorSide::kG, mean),
                     kfac::example_scale(convention, FactorSide::kG, sum) * 36);
    EXPECT_DOUBLE_EQ(kfac::example_scale(convention, FactorSide::kA, mean), 0.25);
    EXPECT_DOUBLE_EQ(kfac::example_scale(convention, FactorSide::kA, sum), 0.25);
  }
  EXPECT_DOUBLE_EQ(
      kfac::example_scale(Convention::kKfc, FactorSide::kG, {4, 6, LossReduction::kSum}), 0.25);
}

// The examples of a step may be those of several calls: the part for positions must not know them.
TEST(FactorScales, PositionPartDoesNotDependOnExamples) {
  for (const auto convention : {Convention::kKfc, Convention::kPaper, Convention::kKfacPytorch}) {
    for (const auto side : {FactorSide::kA, FactorSide::kG}) {
      EXPECT_EQ(kfac::position_scale(convention, side, conv_use(1, 49)),
                kfac::position_scale(convention, side, conv_use(64, 49)));
      EXPECT_EQ(kfac::position_scale(convention, side, linear_use(1, 49)),
                kfac::position_scale(convention, side, linear_use(64, 49)));
    }
  }
}

// With S a power of two the ratios are exact in binary, and scaling by them commutes with rounding.
TEST(FactorScales, ConventionsDifferByExactPowersOfPositions) {
  constexpr double kS = 16;
  constexpr double kN = 4;
  const at::Tensor input = to_device(normal(1, {4, 3, 4, 4}), at::kFloat);
  const at::Tensor gradient = to_device(normal(2, {4, 5, 4, 4}), at::kFloat);
  const kfac::LayerUse use = conv_use(4, 16, true);
  const at::Tensor a = kfac::input_factor(input, use, Convention::kKfc);
  const at::Tensor g = kfac::gradient_factor(gradient, use, Convention::kKfc);
  // A: 1/N to 1/(N·S²) and 1/(N·S³). G: 1/(N·S) to S/N and 1/(N³·S³).
  EXPECT_TRUE(at::equal(kfac::input_factor(input, use, Convention::kPaper), a / (kS * kS)));
  EXPECT_TRUE(at::equal(kfac::gradient_factor(gradient, use, Convention::kPaper), g * (kS * kS)));
  EXPECT_TRUE(
      at::equal(kfac::input_factor(input, use, Convention::kKfacPytorch), a / (kS * kS * kS)));
  EXPECT_TRUE(at::equal(kfac::gradient_factor(gradient, use, Convention::kKfacPytorch),
                        g / (kN * kN * kS * kS)));
}

TEST(FactorScales, LinearConventionsDifferByExactPowersOfPositions) {
  constexpr double kS = 8;
  constexpr double kN = 2;
  const at::Tensor input = to_device(normal(1, {2, 4, 2, 6}), at::kFloat);
  const at::Tensor gradient = to_device(normal(2, {2, 4, 2, 5}), at::kFloat);
  const kfac::LayerUse use = linear_use(2, 8, true);
  const at::Tensor a = kfac::input_factor(input, use, Convention::kKfc);
  const at::Tensor g = kfac::gradient_factor(gradient, use, Convention::kKfc);
  // A: 1/N to 1/(N·S²) and 1/(N·S). G: 1/(N·S) to S/N and 1/(N³·S).
  EXPECT_TRUE(at::equal(kfac::input_factor(input, use, Convention::kPaper), a / (kS * kS)));
  EXPECT_TRUE(at::equal(kfac::gradient_factor(gradient, use, Convention::kPaper), g * (kS * kS)));
  EXPECT_TRUE(at::equal(kfac::input_factor(input, use, Convention::kKfacPytorch), a / kS));
  EXPECT_TRUE(
      at::equal(kfac::gradient_factor(gradient, use, Convention::kKfacPytorch), g / (kN * kN)));
}

TEST(LayerUseOf, LinearTakesTheMiddleDimensionsAsPositions) {
  const auto use_of = [](at::IntArrayRef sizes) {
    return kfac::layer_use(at::zeros(sizes, test_options(at::kFloat)), std::nullopt, true);
  };
  EXPECT_EQ(use_of({5, 3}).examples, 5);
  EXPECT_EQ(use_of({5, 3}).positions, 1);
  EXPECT_EQ(use_of({5, 4, 3}).examples, 5);
  EXPECT_EQ(use_of({5, 4, 3}).positions, 4);
  EXPECT_EQ(use_of({5, 4, 2, 3}).positions, 8);
}

TEST(LayerUseOf, ConvolutionRoundsPositionsDown) {
  // (8 + 2·1 − 2·(3−1) − 1)/2 + 1 = 3 (3.5 rounded down) rows; (9 − 1)/3 + 1 = 3 columns.
  const kfac::ConvGeometry conv{{3, 1}, {2, 3}, {1, 0}, {2, 1}};
  const kfac::LayerUse use =
      kfac::layer_use(at::zeros({2, 4, 8, 9}, test_options(at::kFloat)), conv, false);
  EXPECT_EQ(use.examples, 2);
  EXPECT_EQ(use.positions, 9);
}

// As torch::nn has it.
TEST(LayerUseOf, InputWithoutABatchIsOneExample) {
  const at::Tensor vector = to_device(normal(1, {5}), at::kDouble);
  const kfac::LayerUse linear = kfac::layer_use(vector, std::nullopt, true);
  EXPECT_EQ(linear.examples, 1);
  EXPECT_EQ(linear.positions, 1);
  EXPECT_TRUE(at::equal(kfac::input_factor(vector, linear),
                        kfac::input_factor(vector.unsqueeze(0), linear)));
  EXPECT_TRUE(at::equal(kfac::gradient_factor(vector, linear),
                        kfac::gradient_factor(vector.unsqueeze(0), linear)));

  const at::Tensor image = to_device(normal(2, {2, 4, 5}), at::kDouble);
  const kfac::LayerUse conv = kfac::layer_use(image, kThreeByThree, true);
  EXPECT_EQ(conv.examples, 1);
  EXPECT_EQ(conv.positions, 20);
  EXPECT_TRUE(
      at::equal(kfac::input_factor(image, conv), kfac::input_factor(image.unsqueeze(0), conv)));
  EXPECT_TRUE(at::equal(kfac::gradient_factor(image, conv),
                        kfac::gradient_factor(image.unsqueeze(0), conv)));
}

TEST(LayerUseOf, ShapesThatCannotBeAreInternalErrors) {
  const auto use_of = [](at::IntArrayRef sizes, const std::optional<kfac::ConvGeometry>& conv) {
    return kfac::layer_use(at::zeros(sizes, test_options(at::kFloat)), conv, false);
  };
  const kfac::ConvGeometry three_groups{{1, 1}, {1, 1}, {0, 0}, {1, 1}, 3};
  EXPECT_THROW(use_of({2, 4, 5, 5}, three_groups), InternalError) << "3 groups of 4 channels";
  EXPECT_THROW(use_of({2, 4, 5, 2}, kfac::ConvGeometry{{3, 3}}), InternalError)
      << "kernel past the image";
  EXPECT_THROW(use_of({2, 4}, kfac::ConvGeometry{}), InternalError) << "a matrix is no image";
  EXPECT_THROW(use_of({}, std::nullopt), InternalError) << "a number has no features";
}

// Whole numbers: every product and partial sum is exact in float, so any order gives the same bits.
TEST(FactorProducts, WholeNumbersGiveExactFactorsWhateverTheChunks) {
  const at::Tensor input = whole(5, -4, 4, {4, 3, 8, 8});
  const at::Tensor gradient = whole(6, -4, 4, {4, 6, 8, 8});
  const kfac::LayerUse use = conv_use(4, 64, true);
  // 1/N = 1/4 and N²/(N·S) = 1/16 are powers of two.
  const at::Tensor a =
      support::input_factor_reference(input, kThreeByThree, true, Convention::kKfc, 64);
  const at::Tensor g =
      support::gradient_factor_reference(gradient, kThreeByThree, Convention::kKfc, 64);
  for (const std::int64_t bytes : {1, 900, 4000, 20000, 1 << 28}) {
    EXPECT_TRUE(at::equal(to_host(kfac::input_factor(to_device(input, at::kFloat), use,
                                                     Convention::kKfc, Bytes(bytes))),
                          a))
        << bytes << " bytes";
    EXPECT_TRUE(at::equal(to_host(kfac::gradient_factor(to_device(gradient, at::kFloat), use,
                                                        Convention::kKfc, Bytes(bytes))),
                          g))
        << bytes << " bytes";
  }
}

TEST(FactorProducts, AddUpOnWhatIsThere) {
  // A layer used twice in a forward, with different positions, on top of a sum that exists.
  const at::Tensor first = to_device(whole(1, -3, 3, {2, 3, 4, 4}), at::kFloat);
  const at::Tensor second = to_device(whole(2, -3, 3, {2, 3, 5, 2}), at::kFloat);
  const at::Tensor start = whole(3, -9, 9, {1, 28, 28});
  at::Tensor sum = to_device(start, at::kFloat);
  kfac::add_input_products(first, conv_use(2, 16, true), 0.5, kDefaultPatchMemory, sum);
  kfac::add_input_products(second, conv_use(2, 10, true), 0.25, kDefaultPatchMemory, sum);
  const at::Tensor expected = start + 0.5 * support::conv_input_sums(first, kThreeByThree, true) +
                              0.25 * support::conv_input_sums(second, kThreeByThree, true);
  EXPECT_TRUE(at::equal(to_host(upper(sum)), upper(expected)));
}

TEST(FactorProducts, GradientProductsAddUpOnWhatIsThere) {
  const at::Tensor first = to_device(whole(1, -3, 3, {2, 6, 4, 4}), at::kFloat);
  const at::Tensor second = to_device(whole(2, -3, 3, {2, 6, 5, 2}), at::kFloat);
  kfac::ConvGeometry conv = kThreeByThree;
  conv.groups = 2;
  const at::Tensor start = whole(3, -9, 9, {2, 3, 3});
  at::Tensor sum = to_device(start, at::kFloat);
  kfac::add_gradient_products(first, conv_use(2, 16, true, conv), 0.5, kDefaultPatchMemory, sum);
  kfac::add_gradient_products(second, conv_use(2, 10, true, conv), -0.25, kDefaultPatchMemory, sum);
  const at::Tensor expected = start + 0.5 * support::conv_gradient_sums(first, 2) -
                              0.25 * support::conv_gradient_sums(second, 2);
  EXPECT_TRUE(at::equal(to_host(upper(sum)), upper(expected)));
}

// Sums are members of larger buffers, and what stands below their diagonals is nobody's business.
TEST(FactorProducts, TouchNothingBesideTheSumsAndIgnoreTheirLowerTriangles) {
  const at::Tensor input = to_device(whole(1, -3, 3, {2, 6, 4, 4}), at::kFloat);
  const at::Tensor gradient = to_device(whole(2, -3, 3, {2, 8, 4, 4}), at::kFloat);
  kfac::ConvGeometry conv = kThreeByThree;
  conv.groups = 2;
  const kfac::LayerUse use = conv_use(2, 16, true, conv);
  const auto check = [](std::int64_t dim, const at::Tensor& expected, const auto& add) {
    const at::Tensor buffer = at::full({4, dim, dim}, 7, test_options(at::kFloat));
    at::Tensor sum = buffer.narrow(0, 1, 2);
    sum.copy_(poison_lower(at::zeros_like(sum)));
    add(sum);
    EXPECT_TRUE(at::equal(to_host(upper(sum)), upper(expected)));
    for (const std::int64_t beside : {0, 3}) {
      EXPECT_TRUE(at::equal(buffer[beside], at::full_like(buffer[beside], 7))) << beside;
    }
  };
  check(28, support::conv_input_sums(input, conv, true), [&](at::Tensor& sum) {
    kfac::add_input_products(input, use, 1, kDefaultPatchMemory, sum);
  });
  check(4, support::conv_gradient_sums(gradient, 2), [&](at::Tensor& sum) {
    kfac::add_gradient_products(gradient, use, 1, kDefaultPatchMemory, sum);
  });
}

// In bfloat16 the sums would be wrong in the third digit.
TEST(FactorProducts, HalfPrecisionInputsAccumulateInTheTypeOfTheSum) {
  const at::Tensor input = to_device(normal(1, {4, 3, 9, 9}), at::kBFloat16);
  const at::Tensor gradient = to_device(normal(2, {4, 5, 9, 9}), at::kBFloat16);
  const kfac::LayerUse use = conv_use(4, 81, true);
  const at::Tensor expected_a = support::conv_input_sums(input, kThreeByThree, true);
  const at::Tensor expected_g = support::conv_gradient_sums(gradient, 1);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    at::Tensor a = at::zeros({1, 28, 28}, test_options(type));
    at::Tensor g = at::zeros({1, 5, 5}, test_options(type));
    kfac::add_input_products(input, use, 1, kDefaultPatchMemory, a);
    kfac::add_gradient_products(gradient, use, 1, kDefaultPatchMemory, g);
    EXPECT_TRUE(near_within(upper(a), upper(expected_a), factor_bound(expected_a, 4 * 81, type)));
    EXPECT_TRUE(near_within(upper(g), upper(expected_g), factor_bound(expected_g, 4 * 81, type)));
  }
}

TEST(FactorProducts, HalfPrecisionLinearAccumulatesInTheTypeOfTheSum) {
  const at::Tensor input = to_device(normal(1, {64, 5, 11}), at::kBFloat16);
  const kfac::LayerUse use = linear_use(64, 5, true);
  const at::Tensor expected_a = support::linear_sums(input, true);
  const at::Tensor expected_g = support::linear_sums(input, false);
  at::Tensor a = at::zeros({1, 12, 12}, test_options(at::kFloat));
  at::Tensor g = at::zeros({1, 11, 11}, test_options(at::kFloat));
  kfac::add_input_products(input, use, 1, kDefaultPatchMemory, a);
  kfac::add_gradient_products(input, use, 1, kDefaultPatchMemory, g);
  EXPECT_TRUE(near_within(upper(a), upper(expected_a), factor_bound(expected_a, 320, at::kFloat)));
  EXPECT_TRUE(near_within(upper(g), upper(expected_g), factor_bound(expected_g, 320, at::kFloat)));
}

// What sum().backward() gives: one number with strides of zero.
TEST(FactorProducts, ExpandedGradientIsReadAsItsValues) {
  const at::Tensor gradient = at::full({}, 0.5, test_options(at::kFloat)).expand({3, 4, 5, 5});
  const at::Tensor factor = kfac::gradient_factor(gradient, conv_use(3, 25));
  // N²/(N·S)·Σ = 3/25 · 75 · 0.25.
  EXPECT_TRUE(near_within(factor, at::full({1, 4, 4}, 2.25, at::kDouble), 1e-5));
}

// Inputs arrive with a graph behind them; factors are no part of it.
TEST(FactorProducts, NoGradientFlowsThroughFactors) {
  const at::Tensor input = to_device(normal(1, {2, 3, 4, 4}), at::kFloat).requires_grad_(true);
  EXPECT_FALSE(kfac::input_factor(input, conv_use(2, 16)).requires_grad());
}

}  // namespace
}  // namespace spdkfac
