// SPDX-License-Identifier: Apache-2.0
// Layers whose factors are too large to be kept whole, on one rank.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/kfac_fixture.h"
#include "spdkfac/runtime/factor_shapes.h"
#include "spdkfac/runtime/preconditioner.h"
#include "support/config_error.h"
#include "support/device.h"
#include "support/split_factors.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)
namespace nn = torch::nn;

KfacOptions options_with(std::int64_t max_dimension, LargeFactors large) {
  KfacOptions options{.damping = 0.05, .kl_clip = 0};
  options.max_dimension = max_dimension;
  options.large_factors = large;
  return options;
}

// G⁻¹·∇W·A⁻¹ with factors masked to their blocks, `pi` damping of their whole diagonals.
at::Tensor expected_update(const at::Tensor& a, const at::Tensor& g, const at::Tensor& gradient,
                           const FactorShape& shape_a, const FactorShape& shape_g, double gamma) {
  const auto mean = [](const at::Tensor& one) {
    return one.trace().item<double>() / static_cast<double>(one.size(0));
  };
  const double pi = std::sqrt(mean(a) / mean(g));
  const auto inverse = [](const at::Tensor& whole, const FactorShape& shape, double damping) {
    return at::linalg_inv(masked(whole.unsqueeze(0), shape)[0] +
                          damping * at::eye(shape.size, at::kDouble));
  };
  return inverse(g, shape_g, std::sqrt(gamma) / pi)
      .mm(to_host(gradient))
      .mm(inverse(a, shape_a, std::sqrt(gamma) * pi));
}

// [rows of weight, columns | bias]
at::Tensor joined_gradient(const nn::Linear& layer) {
  return at::cat({layer->weight.grad(), layer->bias.grad().unsqueeze(1)}, 1);
}

// A step on 6 examples, and what it should be.
struct SplitStep {
  explicit SplitStep(const KfacOptions& options) : layer(nn::LinearOptions(5, 9)) {
    torch::manual_seed(3);
    layer->to(test_device(), at::kDouble);
    Preconditioner kfac(*layer, options);
    const at::Tensor input = torch::randn({6, 5}, test_options(at::kDouble));
    const at::Tensor output = layer(input);
    output.retain_grad();
    output.square().sum(1).mean().backward();
    before = joined_gradient(layer).clone();
    kfac.step(0.1);
    after = joined_gradient(layer).clone();
    const at::Tensor ones = torch::ones({6, 1}, test_options(at::kDouble));
    const at::Tensor rows = to_host(at::cat({input, ones}, 1));
    a = rows.t().mm(rows) / 6;
    const at::Tensor of_examples = to_host(output.grad()) * 6;
    g = of_examples.t().mm(of_examples) / 6;
  }
  nn::Linear layer;
  at::Tensor before, after, a, g;
};

TEST(SplitLayers, AreMaskedToTheirDiagonal) {
  const SplitStep step(options_with(6, LargeFactors::kDiagonal));
  const at::Tensor expected =
      expected_update(step.a, step.g, step.before, {6}, FactorShape{9}.as_diagonal(), 0.05);
  EXPECT_TRUE(near_within(step.after, expected, 1e-10));
}

TEST(SplitLayers, AreMaskedToBlocks) {
  const SplitStep step(options_with(4, LargeFactors::kBlocks));
  // 6 rows in 2 blocks of 3, 9 in 3 blocks of 3.
  const at::Tensor expected =
      expected_update(step.a, step.g, step.before, {6, 1, 2}, {9, 1, 3}, 0.05);
  EXPECT_TRUE(near_within(step.after, expected, 1e-10));
  const SplitStep padded(options_with(5, LargeFactors::kBlocks));
  // 9 rows in 2 blocks of 5 and 4.
  const at::Tensor with_padding =
      expected_update(padded.a, padded.g, padded.before, {6, 1, 2}, {9, 1, 2}, 0.05);
  EXPECT_TRUE(near_within(padded.after, with_padding, 1e-10));
}

TEST(SplitLayers, WhatIsSmallEnoughIsWhole) {
  const SplitStep step(options_with(9, LargeFactors::kDiagonal));
  EXPECT_TRUE(
      near_within(step.after, expected_update(step.a, step.g, step.before, {6}, {9}, 0.05), 1e-10));
}

// An embedding's A is diagonal by its kind, however small.
TEST(SplitLayers, AKindMayHaveADiagonalFactor) {
  TrackedLayer layer{.name = "table", .weight = torch::zeros({4, 6}), .bias = {}};
  layer.form_a = FactorForm::kDiagonal;
  EXPECT_EQ(runtime::factor_shape(layer, FactorSide::kA, {}), (FactorShape{6, 1, 6}));
  EXPECT_EQ(runtime::factor_shape(layer, FactorSide::kG, {}), (FactorShape{4, 1, 1}));
}

TEST(SplitLayers, GroupsOfAConvolutionAreSplitEach) {
  const TrackedLayer layer{
      .name = "conv", .weight = torch::zeros({6, 4, 3, 3}), .bias = torch::zeros({6}), .groups = 2};
  EXPECT_EQ(runtime::factor_shape(layer, FactorSide::kA, {}), (FactorShape{37, 2, 1}));
  EXPECT_EQ(runtime::factor_shape(layer, FactorSide::kA, {20, LargeFactors::kBlocks}),
            (FactorShape{37, 2, 2}));
  EXPECT_EQ(runtime::factor_shape(layer, FactorSide::kG, {20, LargeFactors::kBlocks}),
            (FactorShape{3, 2, 1}));
}

TEST(SplitLayers, AVocabularyTakesLittleMemoryAndIsNamedInTheLog) {
  const CapturedLog log("info");
  nn::Linear head(64, 50257);
  head->to(test_device());
  Preconditioner kfac(*head, {.damping = 0.05, .kl_clip = 0}, log.logger());
  EXPECT_THAT(log.lines(), testing::ElementsAre(testing::AllOf(
                               testing::HasSubstr("max_dimension=8192 are not kept whole: G of "),
                               testing::HasSubstr("(50257 rows: diagonal)"))));
  const at::Tensor labels = torch::randint(0, 50257, {8}, test_options(at::kLong));
  for (int i = 0; i < 2; ++i) {
    head->zero_grad();
    nn::functional::cross_entropy(head(torch::randn({8, 64}, test_options(at::kFloat))), labels)
        .backward();
    kfac.step(0.1);
  }
  EXPECT_TRUE(head->weight.grad().isfinite().all().item<bool>());
  EXPECT_EQ(kfac.counters().inverse_retries, 0);
  const KfacMemory memory = kfac.memory();
  // A of 65 rows and the diagonal of G; buffers: three gradients of 50257 x 65.
  EXPECT_LT(memory.factors, Bytes(4 * (65 * 65 + 50257) + 1024));
  // A GPU inverts A padded to 128x128, with as much to work in.
  const std::int64_t batch = on_cuda() ? 4 * 2 * 128 * 128 : 0;
  EXPECT_LT(memory.buffers, Bytes(4 * (3 * 50257 * 65 + 65 * 65 + 50257) + batch + 1024));
}

TEST(SplitLayers, StatesGoOnBitForBit) {
  for (const LargeFactors large : {LargeFactors::kDiagonal, LargeFactors::kBlocks}) {
    const KfacOptions options = options_with(5, large);
    TinyNet whole;
    TinyNet resumed;
    Preconditioner whole_kfac(*whole, options);
    Preconditioner resumed_kfac(*resumed, options);
    const auto step = [](TinyNet& model, Preconditioner& kfac, int seed) {
      torch::manual_seed(static_cast<std::uint64_t>(seed));
      model->zero_grad();
      loss_of(model, random_batch(4)).backward();
      kfac.step(0.1);
    };
    step(whole, whole_kfac, 1);
    const KfacState state = whole_kfac.state().read_all();
    // A of the convolution has 19 rows: as many elements, or four blocks of five.
    EXPECT_EQ(state.tensors.at("conv.a_average").sizes(), large == LargeFactors::kDiagonal
                                                              ? at::IntArrayRef({19, 1})
                                                              : at::IntArrayRef({4, 15}));
    {
      const torch::NoGradGuard no_grad;
      const auto from = whole->parameters();
      const auto to = resumed->parameters();
      for (std::size_t i = 0; i < from.size(); ++i) at::Tensor(to[i]).copy_(from[i]);
    }
    resumed_kfac.load(state);
    step(whole, whole_kfac, 2);
    step(resumed, resumed_kfac, 2);
    EXPECT_TRUE(same_bits(gradients(*whole), gradients(*resumed)));
  }
}

TEST(SplitLayers, OtherLimitsDoNotTakeTheState) {
  TinyNet model;
  Preconditioner kfac(*model, options_with(5, LargeFactors::kDiagonal));
  TinyNet other;
  Preconditioner other_kfac(*other, options_with(5, LargeFactors::kBlocks));
  const KfacState state = kfac.state().read_all();
  expect_config_error([&] { other_kfac.load(state); }, "made with other options");
}

TEST(SplitLayers, ALimitBelowOneIsRefused) {
  TinyNet model;
  expect_config_error([&] { Preconditioner(*model, options_with(0, LargeFactors::kBlocks)); },
                      "kfac: max_dimension=0; pass at least 1 row");
}

TEST(SplitLayers, ACallWithOtherGroupsThanTheModuleIsRefused) {
  nn::Conv2d conv(nn::Conv2dOptions(4, 4, 3).bias(false));
  std::vector<TrackedLayer> layers = tracked_layers(*conv);
  layers[0].groups = 2;
  Preconditioner kfac(layers, {}, KfacOptions{});
  expect_config_error(
      [&] {
        conv(torch::randn({2, 4, 5, 5}));
      },
      "was called with 1 groups, but its module has 2");
}

}  // namespace
}  // namespace spdkfac
