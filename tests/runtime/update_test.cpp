// SPDX-License-Identifier: Apache-2.0
// Grafted steps over torch's optimizers, and the presets for them.
#include "spdkfac/runtime/update.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "spdkfac/runtime/presets.h"

namespace spdkfac {
namespace {

constexpr double kRate = 0.01;
constexpr double kDecay = 0.1;

// A covered layer, and one that is not: the normalisation.
torch::nn::Sequential update_net() {
  torch::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(4, 6),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
  net->to(at::kDouble);
  return net;
}

void update_backward(torch::nn::Sequential& net, std::uint64_t seed) {
  torch::manual_seed(seed);
  const at::Tensor input = torch::randn({16, 4}, at::kDouble);
  net->zero_grad();
  const at::Tensor target = torch::randn({16, 6}, at::kDouble);
  (net->forward(input) - target).square().mean().backward();
}

TEST(Update, OverAdamWHasTheLengthOfItsStepsAndItsDecay) {
  torch::nn::Sequential net = update_net();
  torch::nn::Sequential plain = update_net();
  const auto adamw = [](torch::nn::Sequential& of) {
    return torch::optim::AdamW(of->parameters(),
                               torch::optim::AdamWOptions(kRate).weight_decay(kDecay).eps(1e-12));
  };
  torch::optim::AdamW optimizer = adamw(net);
  torch::optim::AdamW reference = adamw(plain);
  Preconditioner kfac(*net, kfac_preset("mlp", optimizer));
  ASSERT_EQ(kfac.options().graft, Graft::kAdam);
  ASSERT_EQ(kfac.options().graft_adam.epsilon, 1e-12);
  for (std::uint64_t step = 0; step < 4; ++step) {
    torch::NoGradGuard no_grad;
    std::vector<at::Tensor> before;
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      plain->parameters()[i].copy_(net->parameters()[i]);  // the same gradients for both
      before.push_back(net->parameters()[i].clone());
    }
    {
      const torch::AutoGradMode with_gradients(true);
      update_backward(net, step);
      update_backward(plain, step);
    }
    kfac.step(kRate);
    update_parameters(optimizer, kfac);
    reference.step();
    const auto length = [&](torch::nn::Sequential& of) {  // of the covered layer's update
      double squares = 0;
      for (std::size_t i = 0; i < 2; ++i) {
        const at::Tensor update = before[i] * (1 - kRate * kDecay) - of->parameters()[i];
        squares += update.square().sum().item<double>();
      }
      return std::sqrt(squares);
    };
    EXPECT_NEAR(length(net), length(plain), 1e-7 * length(plain)) << step;
    if (step > 0) {
      EXPECT_FALSE(at::allclose(net->parameters()[0], plain->parameters()[0]));
    }
    // The others take the optimizer's own step.
    for (std::size_t i = 2; i < 4; ++i) {
      EXPECT_TRUE(at::allclose(net->parameters()[i], plain->parameters()[i], 1e-12)) << step;
    }
    EXPECT_TRUE(net->parameters()[0].grad().defined());
  }
  // Adam's own moments of the covered layer never came to be.
  EXPECT_EQ(optimizer.state().size(), 2);
}

TEST(Update, IsTheOptimizersStepWithoutGrafting) {
  torch::nn::Sequential net = update_net();
  torch::nn::Sequential same = update_net();
  torch::optim::Adam optimizer(net->parameters(), kRate);
  torch::optim::Adam other(same->parameters(), kRate);
  Preconditioner kfac(*net, kfac_preset("paper", optimizer));
  Preconditioner kfac_of_same(*same, kfac_preset("paper", other));
  update_backward(net, 1);
  update_backward(same, 1);
  kfac.step(kRate);
  kfac_of_same.step(kRate);
  update_parameters(optimizer, kfac);
  other.step();
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    EXPECT_TRUE(torch::equal(net->parameters()[i], same->parameters()[i]));
  }
}

TEST(Update, PresetsFitTheOptimizer) {
  torch::nn::Sequential net = update_net();
  const torch::optim::SGD sgd(net->parameters(), kRate);
  const torch::optim::Adam adam(net->parameters(),
                                torch::optim::AdamOptions(kRate).betas({0.8, 0.95}).eps(1e-6));
  EXPECT_EQ(kfac_preset("cnn", sgd).graft, Graft::kSgd);
  EXPECT_EQ(kfac_preset("cnn", sgd).kl_clip, 0);
  EXPECT_EQ(kfac_preset("paper", sgd).graft, Graft::kNone);
  const KfacOptions over_adam = kfac_preset("transformer", adam);
  EXPECT_EQ(over_adam.graft, Graft::kAdam);
  EXPECT_EQ(over_adam.graft_adam.beta1, 0.8);
  EXPECT_EQ(over_adam.graft_adam.beta2, 0.95);
  EXPECT_EQ(over_adam.graft_adam.epsilon, 1e-6);
  EXPECT_FALSE(adam_options_of(sgd));
}

TEST(Update, GraftAndIntervalBringWhatBelongsToThem) {
  KfacOptions options = kfac_preset("mlp");
  EXPECT_EQ(options.intervals(), (RefreshIntervals{10, 100}));
  set_graft(options, Graft::kNone);
  EXPECT_EQ(options.kl_clip, KfacOptions().kl_clip);
  set_interval(options, Refresh::kFixed);
  EXPECT_EQ(options.intervals(), RefreshIntervals{});
  set_graft(options, Graft::kSgd);
  EXPECT_EQ(options.kl_clip, 0);
  EXPECT_NO_THROW(validate(options));
}

}  // namespace
}  // namespace spdkfac
