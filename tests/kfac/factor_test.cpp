// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/factor.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kfac/factor_cases.h"
#include "support/device.h"
#include "support/kfac_reference.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::factor_bound;
using support::factor_cases;
using support::FactorCase;
using support::gradient_factor_reference;
using support::input_factor_reference;
using support::near_within;
using support::to_host;

constexpr Convention kConventions[] = {Convention::kKfc, Convention::kPaper,
                                       Convention::kKfacPytorch};

bool exactly_symmetric(const at::Tensor& factor) { return at::equal(factor, factor.mT()); }

// From one row of output at a time to everything at once.
constexpr Bytes kPatchMemories[] = {Bytes(0), Bytes(1), Bytes(700), Bytes(5000),
                                    kDefaultPatchMemory};

class Factors : public ::testing::TestWithParam<FactorCase> {
 protected:
  const FactorCase& c() const { return GetParam(); }
  // Σ has one term for each example and position.
  std::int64_t terms() const { return c().examples() * c().positions(); }
};

class ConvReference : public Factors {};

// The reference itself: weight·ã at each position is what torch convolves.
TEST_P(ConvReference, PatchTimesWeightIsTheConvolution) {
  const kfac::ConvGeometry& conv = *c().conv;
  const at::Tensor input = to_host(c().make_input());
  const at::Tensor weight =
      support::normal(3, {c().outputs, c().input[1] / conv.groups, conv.kernel[0], conv.kernel[1]});
  const at::Tensor bias = c().bias ? support::normal(4, {c().outputs}) : at::Tensor();
  const at::Tensor output =
      at::conv2d(input, weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups);
  ASSERT_EQ(output.sizes(), at::IntArrayRef(c().output()));

  const auto images = input.accessor<double, 4>();
  at::Tensor expected = at::zeros_like(output);
  auto out = expected.accessor<double, 4>();
  const at::Tensor rows = weight.flatten(1);
  for (std::int64_t n = 0; n < output.size(0); ++n) {
    for (std::int64_t o = 0; o < c().outputs; ++o) {
      at::Tensor row = rows[o];
      if (bias.defined()) row = at::cat({row, bias.narrow(0, o, 1)});
      const double* w = row.const_data_ptr<double>();
      for (std::int64_t y = 0; y < output.size(2); ++y) {
        for (std::int64_t x = 0; x < output.size(3); ++x) {
          const auto patch = support::patch_reference(images[n], conv, c().bias,
                                                      o / (c().outputs / conv.groups), y, x);
          for (std::size_t i = 0; i < patch.size(); ++i) out[n][o][y][x] += w[i] * patch[i];
        }
      }
    }
  }
  // At most 600 products of size 10 in double precision.
  EXPECT_TRUE(near_within(output, expected, 1e-11));
}

TEST_P(Factors, LayerUseCountsExamplesAndPositions) {
  const kfac::LayerUse use = kfac::layer_use(c().make_input(), c().conv, c().bias);
  EXPECT_EQ(use.conv, c().conv);
  EXPECT_EQ(use.bias, c().bias);
  EXPECT_EQ(use.examples, c().examples());
  EXPECT_EQ(use.positions, c().positions());
  EXPECT_EQ(use.groups(), c().conv ? c().conv->groups : 1);
}

TEST_P(Factors, InputFactorEqualsLoopsOverExamplesAndPositions) {
  const at::Tensor input = c().make_input();
  for (const Convention convention : kConventions) {
    const at::Tensor expected =
        input_factor_reference(input, c().conv, c().bias, convention, c().positions());
    const at::Tensor factor = kfac::input_factor(input, c().use(), convention);
    EXPECT_EQ(factor.scalar_type(), c().type);
    EXPECT_EQ(factor.device(), input.device());
    EXPECT_TRUE(near_within(factor, expected, factor_bound(expected, terms(), c().type)))
        << "convention " << convention_names()[static_cast<std::size_t>(convention)];
    EXPECT_TRUE(exactly_symmetric(factor));
  }
}

TEST_P(Factors, GradientFactorEqualsLoopsOverExamplesAndPositions) {
  const at::Tensor gradient = c().make_gradient();
  for (const Convention convention : kConventions) {
    const at::Tensor expected =
        gradient_factor_reference(gradient, c().conv, convention, c().positions());
    const at::Tensor factor = kfac::gradient_factor(gradient, c().use(), convention);
    EXPECT_EQ(factor.scalar_type(), c().type);
    EXPECT_EQ(factor.device(), gradient.device());
    EXPECT_TRUE(near_within(factor, expected, factor_bound(expected, terms(), c().type)))
        << "convention " << convention_names()[static_cast<std::size_t>(convention)];
    EXPECT_TRUE(exactly_symmetric(factor));
  }
}

TEST_P(Factors, LittlePatchMemoryGivesTheSameFactors) {
  const at::Tensor input = c().make_input();
  const at::Tensor gradient = c().make_gradient();
  const at::Tensor expected_a =
      input_factor_reference(input, c().conv, c().bias, Convention::kKfc, c().positions());
  const at::Tensor expected_g =
      gradient_factor_reference(gradient, c().conv, Convention::kKfc, c().positions());
  const at::Tensor bound_a = factor_bound(expected_a, terms(), c().type);
  const at::Tensor bound_g = factor_bound(expected_g, terms(), c().type);
  for (const Bytes memory : kPatchMemories) {
    const at::Tensor a = kfac::input_factor(input, c().use(), Convention::kKfc, memory);
    const at::Tensor g = kfac::gradient_factor(gradient, c().use(), Convention::kKfc, memory);
    EXPECT_TRUE(near_within(a, expected_a, bound_a)) << memory.value() << " bytes";
    EXPECT_TRUE(near_within(g, expected_g, bound_g)) << memory.value() << " bytes";
    EXPECT_TRUE(exactly_symmetric(a) && exactly_symmetric(g)) << memory.value() << " bytes";
  }
}

TEST_P(Factors, ArgumentsStayAsTheyWere) {
  const at::Tensor input = c().make_input();
  const at::Tensor gradient = c().make_gradient();
  const at::Tensor input_before = input.clone();
  const at::Tensor gradient_before = gradient.clone();
  kfac::input_factor(input, c().use());
  kfac::gradient_factor(gradient, c().use());
  EXPECT_TRUE(at::equal(input, input_before));
  EXPECT_TRUE(at::equal(gradient, gradient_before));
}

std::vector<FactorCase> conv_cases() {
  std::vector<FactorCase> cases = factor_cases();
  std::erase_if(cases, [](const FactorCase& c) { return !c.conv; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Factors, ::testing::ValuesIn(factor_cases()));
INSTANTIATE_TEST_SUITE_P(Shapes, ConvReference, ::testing::ValuesIn(conv_cases()));

}  // namespace
}  // namespace spdkfac
