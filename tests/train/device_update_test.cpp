// SPDX-License-Identifier: Apache-2.0
// Updates with the rate on the device beside those of torch's optimizers.
#include "spdkfac/train/device_update.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "spdkfac/train/optimizer_state.h"
#include "support/device.h"

namespace spdkfac::train {
namespace {

using support::test_options;
using Parameters = std::vector<at::Tensor>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(Parameters)>;

constexpr int kUpdates = 6;
constexpr double kRoundingOfUpdates = 1e-5;  // of 32 bits, over some steps

template <class Optimizer, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](Parameters parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

struct UpdateCase {
  std::string name;
  MakeOptimizer make;
};

Parameters some_parameters() {
  torch::manual_seed(4);
  return {torch::randn({3, 5}, test_options(at::kFloat)).requires_grad_(),
          torch::randn({7}, test_options(at::kFloat)).requires_grad_()};
}

void set_gradients(const Parameters& parameters, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  for (const at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = torch::randn_like(parameter);
  }
  // One has its first gradient later than the other.
  if (step < 2) parameters.back().mutable_grad().reset();
}

NamedTensors state_of(torch::optim::Optimizer& optimizer, const Parameters& parameters) {
  return optimizer_tensors({&optimizer}, {{"a", parameters[0]}, {"b", parameters[1]}});
}

class DeviceUpdateOf : public testing::TestWithParam<UpdateCase> {};

TEST_P(DeviceUpdateOf, StepsAsTheOptimizerDoes) {
  const Parameters expected = some_parameters();
  const Parameters parameters = some_parameters();
  const auto optimizer = GetParam().make(expected);
  const auto held = GetParam().make(parameters);
  DeviceUpdate update(*held, {}, support::test_device());
  for (int step = 0; step < kUpdates; ++step) {
    const double rate = 0.1 / (1 + step);
    set_gradients(expected, step);
    set_gradients(parameters, step);
    for (auto& group : optimizer->param_groups()) group.options().set_lr(rate);
    optimizer->step();
    update.set_rate(rate);
    update.step();
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(torch::allclose(parameters[i], expected[i], kRoundingOfUpdates, kRoundingOfUpdates))
        << i;
  }
  const NamedTensors wanted = state_of(*optimizer, expected);
  const NamedTensors state = state_of(*held, parameters);
  ASSERT_EQ(state.size(), wanted.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].first, wanted[i].first);
    EXPECT_TRUE(
        torch::allclose(state[i].second, wanted[i].second, kRoundingOfUpdates, kRoundingOfUpdates))
        << state[i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, DeviceUpdateOf,
    testing::Values(
        UpdateCase{"sgd", maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1))},
        UpdateCase{"momentum", maker<torch::optim::SGD>(
                                   torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.02))},
        UpdateCase{
            "nesterov",
            maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true))},
        UpdateCase{"adam",
                   maker<torch::optim::Adam>(torch::optim::AdamOptions(0.1).weight_decay(0.02))},
        UpdateCase{"adamw",
                   maker<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1).weight_decay(0.02))}),
    [](const auto& one) { return one.param.name; });

// Its gradient already has the length of a step: w − η(λw + g), of AdamW.
TEST(DeviceUpdate, AppliesGradientsAsTheyAreWhereThatIsAsked) {
  const Parameters parameters = some_parameters();
  const at::Tensor before = parameters[0].detach().clone();
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(0.1).weight_decay(0.5));
  DeviceUpdate update(optimizer, {parameters[0].unsafeGetTensorImpl()}, support::test_device());
  set_gradients(parameters, 2);
  update.set_rate(0.1);
  update.step();
  EXPECT_TRUE(torch::allclose(parameters[0], before * 0.95 - 0.1 * parameters[0].grad(), 1e-6));
  EXPECT_EQ(state_of(optimizer, parameters).size(), 3) << "moments of the other one alone";
}

TEST(DeviceUpdate, GoesOnFromTheStateThatTheOptimizerHas) {
  const Parameters expected = some_parameters();
  const Parameters parameters = some_parameters();
  torch::optim::Adam optimizer(expected, torch::optim::AdamOptions(0.1));
  torch::optim::Adam held(parameters, torch::optim::AdamOptions(0.1));
  for (int step = 2; step < 4; ++step) {
    set_gradients(expected, step);
    set_gradients(parameters, step);
    optimizer.step();
    held.step();
  }
  DeviceUpdate update(held, {}, support::test_device());
  update.set_rate(0.1);
  set_gradients(expected, 5);
  set_gradients(parameters, 5);
  optimizer.step();
  update.step();
  EXPECT_TRUE(torch::allclose(parameters[0], expected[0], kRoundingOfUpdates, kRoundingOfUpdates));
}

TEST(DeviceUpdate, CountsWhatWasReplayed) {
  const Parameters parameters = some_parameters();
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(0.1));
  DeviceUpdate update(optimizer, {}, support::test_device());
  set_gradients(parameters, 2);
  update.step();
  update.count_replayed();
  for (const auto& [name, tensor] : state_of(optimizer, parameters)) {
    if (!name.ends_with(".step")) continue;
    EXPECT_EQ(tensor.item<std::int64_t>(), 2) << name;
  }
}

}  // namespace
}  // namespace spdkfac::train
