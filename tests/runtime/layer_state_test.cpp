// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/layer_state.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/config_error.h"
#include "support/device.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

struct OneState {
  explicit OneState(bool partial = false)
      : module(torch::nn::LinearOptions(3, 2).bias(false)),
        passes(options),
        state(tracked(partial), options) {}
  TrackedLayer tracked(bool partial) {
    module->to(test_device(), at::kDouble);
    return {.name = "one", .weight = module->weight, .bias = {}, .partial = partial};
  }
  at::Tensor examples(std::int64_t count) const {
    return torch::randn({count, 3}, test_options(at::kDouble));
  }
  // The output must live as long as its graph is to count.
  std::pair<std::int64_t, at::Tensor> call(const at::Tensor& input, bool defer = false) {
    const at::Tensor output = module(input);
    const kfac::LayerUse use = kfac::layer_use(input, std::nullopt, false);
    const std::int64_t pass = passes.on_call(use, input, output);
    if (defer) {
      state.defer(FactorSide::kA, {use, pass, input});
    } else {
      state.add(FactorSide::kA, {use, pass, input}, passes);
    }
    return {pass, output};
  }
  void gradient(const at::Tensor& input, std::int64_t pass) {
    passes.on_gradient(pass);
    state.add(FactorSide::kG,
              {kfac::layer_use(input, std::nullopt, false), pass,
               torch::ones({input.size(0), 2}, test_options(at::kDouble))},
              passes);
  }
  KfacOptions options;
  torch::nn::Linear module;
  runtime::Passes passes;
  runtime::LayerState state;
};

TEST(LayerState, CallsOfAPassCountItsExamplesOnce) {
  OneState layer;
  const at::Tensor input = layer.examples(4);
  const auto [first, one] = layer.call(input);
  const auto [second, other] = layer.call(input);
  EXPECT_EQ(first, second);
  EXPECT_EQ(layer.state.factor(FactorSide::kA).examples, 4);
  layer.gradient(input, first);
  layer.gradient(input, second);
  EXPECT_EQ(layer.state.factor(FactorSide::kG).examples, 4);
  EXPECT_TRUE(layer.state.captured());
}

TEST(LayerState, PassesAddTheirExamples) {
  OneState layer;
  const at::Tensor input = layer.examples(4);
  const auto [first, one] = layer.call(input);
  layer.gradient(input, first);
  const auto [second, other] = layer.call(input);
  EXPECT_NE(first, second);
  layer.gradient(input, second);
  EXPECT_EQ(layer.state.factor(FactorSide::kA).examples, 8);
  EXPECT_EQ(layer.state.factor(FactorSide::kG).examples, 8);
}

TEST(LayerState, RowsOfAPartialLayerAreItsExamples) {
  OneState layer(/*partial=*/true);
  const auto [pass, output] = layer.call(layer.examples(4));
  layer.call(layer.examples(3));
  EXPECT_EQ(layer.state.factor(FactorSide::kA).examples, 7);
}

TEST(LayerState, ACallWithoutRowsAddsNothing) {
  for (const bool partial : {false, true}) {
    OneState layer(partial);
    const at::Tensor none = layer.examples(0);
    const auto [first, one] = layer.call(none);
    layer.gradient(none, first);
    EXPECT_TRUE(layer.state.seen());
    EXPECT_FALSE(layer.state.captured());
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      EXPECT_FALSE(layer.state.factor(side).summed);
      EXPECT_EQ(layer.state.factor(side).examples, 0);
    }
    // In a pass that has examples, before and after a call with rows.
    const at::Tensor input = layer.examples(4);
    const auto [second, some] = layer.call(none);
    const auto [same, more] = layer.call(input);
    const auto [last, nothing] = layer.call(none);
    EXPECT_EQ(second, last);
    layer.gradient(none, second);
    layer.gradient(input, second);
    EXPECT_EQ(layer.state.factor(FactorSide::kA).examples, 4);
    EXPECT_EQ(layer.state.factor(FactorSide::kG).examples, 4);
    EXPECT_TRUE(torch::allclose(layer.state.factor(FactorSide::kA).sum[0].triu(),
                                input.t().mm(input).triu()));
    layer.state.clear();
    EXPECT_FALSE(layer.state.seen());
  }
}

TEST(LayerState, RowsThatExamplesDoNotDivideNameTheLayer) {
  OneState layer;
  const auto [pass, output] = layer.call(layer.examples(4));
  expect_config_error([&] { layer.call(layer.examples(6)); },
                      "layer one has 6 rows in a pass of 4 examples");
}

TEST(LayerState, RowsOfAConstantAreItsExamples) {
  OneState layer;
  const auto [pass, output] = layer.call(layer.examples(4));
  const at::Tensor table = layer.examples(6);
  layer.state.clear();
  layer.state.add(FactorSide::kA,
                  {kfac::layer_use(table, std::nullopt, false), pass, table, /*constant=*/true},
                  layer.passes);
  EXPECT_EQ(layer.state.factor(FactorSide::kA).examples, 6);
}

TEST(LayerState, DeferredCallsAddUpLater) {
  OneState layer;
  const at::Tensor input = layer.examples(4);
  const auto [pass, output] = layer.call(input, /*defer=*/true);
  EXPECT_FALSE(layer.state.factor(FactorSide::kA).summed);
  EXPECT_TRUE(layer.state.has_deferred(FactorSide::kA));
  EXPECT_FALSE(layer.state.has_deferred(FactorSide::kG));
  layer.state.add_deferred(FactorSide::kA, layer.passes);
  EXPECT_EQ(layer.state.factor(FactorSide::kA).examples, 4);
  EXPECT_TRUE(torch::allclose(layer.state.factor(FactorSide::kA).sum[0].triu(),
                              input.t().mm(input).triu()));
  EXPECT_FALSE(layer.state.has_deferred(FactorSide::kA));
}

TEST(LayerState, ClearForgetsDeferredCalls) {
  OneState layer;
  const at::Tensor input = layer.examples(4);
  const auto [pass, output] = layer.call(input, /*defer=*/true);
  layer.state.clear();
  EXPECT_FALSE(layer.state.has_deferred(FactorSide::kA));
  EXPECT_EQ(layer.state.factor(FactorSide::kA).examples, 0);
}

}  // namespace
}  // namespace spdkfac
