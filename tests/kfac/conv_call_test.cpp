// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/conv_call.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/factor.h"
#include "support/device.h"
#include "support/jacobians.h"

namespace spdkfac {
namespace {

using support::test_options;

// A convolution of any dimensions, as torch calls it.
struct ConvCase {
  const char* name;
  kfac::ConvCall call;
  std::vector<std::int64_t> input;  // [N, C, …]
  std::int64_t outputs = 4;
  bool bias = true;
};
void PrintTo(const ConvCase& c, std::ostream* out) { *out << c.name; }

kfac::ConvCall conv(std::int64_t dimensions, kfac::ConvCall::Axes kernel) {
  kfac::ConvCall call;
  call.dimensions = dimensions;
  call.kernel = kernel;
  return call;
}

kfac::ConvCall changed(kfac::ConvCall call, const std::function<void(kfac::ConvCall&)>& change) {
  change(call);
  return call;
}

std::vector<ConvCase> call_cases() {
  using Call = kfac::ConvCall;
  const Call line = changed(conv(1, {1, 1, 3}), [](Call& c) {
    c.stride = {1, 1, 2};
    c.padding = {0, 0, 2};
    c.dilation = {1, 1, 2};
  });
  const Call space = changed(conv(3, {2, 3, 2}), [](Call& c) {
    c.stride = {2, 1, 2};
    c.padding = {1, 2, 0};
    c.dilation = {2, 1, 1};
  });
  const auto transposed = [](Call call) {
    call.transposed = true;
    return call;
  };
  const auto grouped = [](Call call) {
    call.groups = 2;
    return call;
  };
  const Call line_back = changed(transposed(line), [](Call& c) { c.output_padding = {0, 0, 1}; });
  const Call plane_back = changed(transposed(conv(2, {1, 3, 2})), [](Call& c) {
    c.stride = {1, 2, 3};
    c.padding = {0, 1, 0};
    c.dilation = {1, 1, 2};
    c.output_padding = {0, 1, 2};
  });
  const Call space_back = changed(transposed(space), [](Call& c) {
    c.padding = {1, 1, 0};
    c.output_padding = {1, 0, 0};
  });
  // More padding than the kernel reaches: outputs at the edge see less than the whole kernel.
  const Call cropped = changed(transposed(conv(2, {1, 2, 2})), [](Call& c) {
    c.stride = {1, 2, 2};
    c.padding = {0, 2, 2};
  });
  return {{"Conv1d", line, {3, 4, 9}},
          {"Conv1dPoint", conv(1, {1, 1, 1}), {3, 4, 5}, 4, false},
          {"Conv1dGroups", grouped(line), {3, 4, 9}},
          {"Conv3d", space, {2, 3, 4, 5, 4}},
          {"Conv3dPoint", conv(3, {1, 1, 1}), {2, 3, 2, 3, 2}, 4, false},
          {"Conv3dGroups", grouped(space), {2, 4, 4, 5, 4}, 4, false},
          {"ConvTranspose1d", line_back, {3, 4, 5}},
          {"ConvTranspose1dGroups", grouped(line_back), {3, 4, 5}, 6},
          {"ConvTranspose2d", plane_back, {2, 3, 3, 4}},
          {"ConvTranspose2dGroups", grouped(plane_back), {2, 4, 3, 4}, 4, false},
          {"ConvTranspose2dUpsampling",
           changed(transposed(conv(2, {1, 2, 2})),
                   [](Call& c) {
                     c.stride = {1, 2, 2};
                   }),
           {2, 3, 3, 3}},
          {"ConvTranspose2dCropped", cropped, {2, 3, 4, 5}},
          {"ConvTranspose3d", space_back, {2, 3, 3, 2, 3}},
          {"ConvTranspose3dGroups", grouped(space_back), {2, 4, 3, 2, 3}, 4, false}};
}

class ConvCalls : public testing::TestWithParam<ConvCase> {
 protected:
  void SetUp() override {
    torch::manual_seed(3);
    const ConvCase& c = GetParam();
    const kfac::ConvCall& call = c.call;
    const std::int64_t first = call.transposed ? c.input[1] : c.outputs;
    const std::int64_t second = (call.transposed ? c.outputs : c.input[1]) / call.groups;
    std::vector<std::int64_t> shape = {first, second};
    const auto skip = static_cast<std::size_t>(3 - call.dimensions);
    shape.insert(shape.end(), call.kernel.begin() + static_cast<std::ptrdiff_t>(skip),
                 call.kernel.end());
    layer.weight = torch::randn(shape, test_options(at::kDouble)).requires_grad_();
    if (c.bias) layer.bias = torch::zeros({c.outputs}, test_options(at::kDouble));
    layer.layout = call.transposed ? kfac::WeightLayout::kInOut : kfac::WeightLayout::kOutIn;
    layer.groups = call.groups;
    input = torch::randn(c.input, test_options(at::kDouble));
    const auto axes = [&](const kfac::ConvCall::Axes& all) {
      return at::IntArrayRef(all).slice(skip);
    };
    output = at::convolution(input, layer.weight, layer.bias, axes(call.stride), axes(call.padding),
                             axes(call.dilation), call.transposed, axes(call.output_padding),
                             call.groups);
    use = kfac::layer_use(input, call, c.bias);
  }
  static void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
    ASSERT_EQ(actual.sizes(), expected.sizes());
    EXPECT_TRUE(at::allclose(actual, expected, 1e-11, 1e-11))
        << (actual - expected).abs().max().item<double>();
  }

  support::LayerUnderTest layer;
  at::Tensor input;
  at::Tensor output;
  kfac::LayerUse use;
};

TEST_P(ConvCalls, CountExamplesAndPositions) {
  EXPECT_EQ(use.examples, input.size(0));
  EXPECT_EQ(use.positions, output[0][0].numel());
}

TEST_P(ConvCalls, HaveTheInputFactorOfTheirDerivatives) {
  const at::Tensor expected = support::input_factor_of(layer, output);
  expect_close(kfac::input_factor(input, use), expected);
  // In parts of one example.
  expect_close(kfac::input_factor(input, use, Convention::kKfc, Bytes(1)), expected);
}

TEST_P(ConvCalls, HaveTheGradientFactorOfTheirPositions) {
  const at::Tensor gradient = torch::randn(output.sizes(), test_options(at::kDouble));
  expect_close(kfac::gradient_factor(gradient, use),
               support::gradient_factor_of(gradient, use.groups()));
}

TEST_P(ConvCalls, TakeASingleExampleWithoutItsDimension) {
  const kfac::LayerUse alone = kfac::layer_use(input[0], GetParam().call, GetParam().bias);
  const kfac::LayerUse batch =
      kfac::layer_use(input.narrow(0, 0, 1), GetParam().call, GetParam().bias);
  expect_close(kfac::input_factor(input[0], alone),
               kfac::input_factor(input.narrow(0, 0, 1), batch));
}

TEST_P(ConvCalls, AddToASumAndTakeEmptyBatches) {
  const at::Tensor factor = kfac::input_factor(input, use);
  at::Tensor sum = factor.clone();
  kfac::add_input_products(input, use, 1, kDefaultPatchMemory, sum);
  const auto examples = static_cast<double>(use.examples);
  expect_close(sum.triu(), (factor * (1 + examples)).triu());
  const at::Tensor none = input.narrow(0, 0, 0);
  kfac::add_input_products(none, kfac::layer_use(none, GetParam().call, GetParam().bias), 1,
                           kDefaultPatchMemory, sum, /*overwrite=*/true);
  EXPECT_EQ(sum.abs().max().item<double>(), 0);
}

TEST_P(ConvCalls, JoinAndSplitGradientsInTheOrderOfTheirFactors) {
  const at::Tensor gradient = torch::randn(layer.weight.sizes(), test_options(at::kDouble));
  const at::Tensor bias = GetParam().bias
                              ? torch::randn({GetParam().outputs}, test_options(at::kDouble))
                              : at::Tensor();
  const at::Tensor matrix = support::matrix_of(gradient, layer.layout, layer.groups);
  at::Tensor joined =
      torch::empty({matrix.size(0), matrix.size(1), matrix.size(2) + (bias.defined() ? 1 : 0)},
                   test_options(at::kDouble));
  kfac::join_gradient(gradient, bias, joined, layer.layout);
  EXPECT_TRUE(at::equal(joined.narrow(2, 0, matrix.size(2)), matrix));
  at::Tensor weight_back = torch::empty_like(gradient);
  at::Tensor bias_back = bias.defined() ? torch::empty_like(bias) : at::Tensor();
  kfac::split_gradient(joined, weight_back, bias_back, layer.layout);
  EXPECT_TRUE(at::equal(weight_back, gradient));
  if (bias.defined()) {
    EXPECT_TRUE(at::equal(bias_back, bias));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ConvCalls, testing::ValuesIn(call_cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(ConvCall, OfAPlaneHasNoDepth) {
  const kfac::ConvCall call(kfac::ConvGeometry{{3, 2}, {2, 1}, {1, 0}, {1, 2}, 3});
  EXPECT_EQ(call.dimensions, 2);
  EXPECT_EQ(call.kernel, (kfac::ConvCall::Axes{1, 3, 2}));
  EXPECT_EQ(call.padding, (kfac::ConvCall::Axes{0, 1, 0}));
  EXPECT_EQ(call.groups, 3);
}

TEST(ConvCall, RefusesInputsThatTheKernelDoesNotFit) {
  const kfac::ConvCall call = conv(3, {3, 1, 1});
  EXPECT_THROW(kfac::layer_use(at::zeros({1, 1, 2, 5, 5}), call, false), InternalError);
  EXPECT_THROW(kfac::layer_use(at::zeros({1, 5, 5}), call, false), InternalError);
}

// A layer whose bias alone is trained has A = [[positions]], for any input.
TEST(InputFactor, OfABiasAloneCountsRows) {
  kfac::LayerUse use = kfac::layer_use(at::randn({4, 3, 5}), std::nullopt, true);
  use.weight = false;
  EXPECT_TRUE(
      at::allclose(kfac::input_factor(at::randn({4, 3, 5}), use), at::full({1, 1, 1}, 3.0)));
}

}  // namespace
}  // namespace spdkfac
