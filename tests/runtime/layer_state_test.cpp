// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/layer_state.h"

#include <sstream>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/device.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

struct OneState {
  OneState() : module(torch::nn::LinearOptions(3, 2).bias(false)), state(tracked(), options) {}
  TrackedLayer tracked() {
    module->to(test_device(), at::kDouble);
    return {.name = "one", .weight = module->weight, .bias = {}};
  }
  at::Tensor examples(std::int64_t count) const {
    return torch::randn({count, 3}, test_options(at::kDouble));
  }
  // The output must live as long as its graph is to count.
  std::pair<std::int64_t, at::Tensor> call(const at::Tensor& input, bool defer = false) {
    const at::Tensor output = module(input);
    return {state.add_call(kfac::layer_use(input, std::nullopt, false), input, output, defer),
            output};
  }
  void gradient(const at::Tensor& input, std::int64_t pass) {
    state.add_gradient(kfac::layer_use(input, std::nullopt, false),
                       torch::ones({input.size(0), 2}, test_options(at::kDouble)), pass, false);
  }
  KfacOptions options;
  torch::nn::Linear module;
  runtime::LayerState state;
};

TEST(LayerState, CallsBeforeAGradientCountTheirExamplesOnce) {
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

TEST(LayerState, ACallAfterAGradientBeginsAnotherPass) {
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

TEST(LayerState, ACallWhoseGraphIsGoneBeginsAnotherPass) {
  OneState layer;
  const at::Tensor input = layer.examples(4);
  const std::int64_t first = layer.call(input).first;
  const auto [second, other] = layer.call(input);
  EXPECT_NE(first, second);
  EXPECT_EQ(layer.state.factor(FactorSide::kA).examples, 8);
}

TEST(LayerState, DeferredCallsCountTheirExamplesAtOnceAndAddUpLater) {
  OneState layer;
  const at::Tensor input = layer.examples(4);
  const auto [pass, output] = layer.call(input, /*defer=*/true);
  EXPECT_EQ(layer.state.factor(FactorSide::kA).examples, 4);
  EXPECT_FALSE(layer.state.factor(FactorSide::kA).summed);
  EXPECT_TRUE(layer.state.has_deferred(FactorSide::kA));
  EXPECT_FALSE(layer.state.has_deferred(FactorSide::kG));
  layer.state.add_deferred(FactorSide::kA);
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

TEST(LayerState, ThatWasCalledButNeverAveragedIsSavedAsOneThatWasNot) {
  OneState layer;
  const at::Tensor input = layer.examples(4);
  const auto [pass, output] = layer.call(input);
  torch::serialize::OutputArchive out;
  layer.state.save(out);
  std::stringstream text;
  out.save_to(text);
  torch::serialize::InputArchive in;
  in.load_from(text);
  OneState other;
  other.state.load(in);
  EXPECT_FALSE(other.state.ready());
}

}  // namespace
}  // namespace spdkfac
