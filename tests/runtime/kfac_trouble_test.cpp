// SPDX-License-Identifier: Apache-2.0
// What happens when numbers go bad: training goes on, counters and one line in the log say so.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "runtime/kfac_fixture.h"

namespace spdkfac {
namespace {

using namespace support;
using testing::HasSubstr;
namespace nn = torch::nn;

bool all_finite(const nn::Module& model) {
  for (const at::Tensor& parameter : model.parameters()) {
    if (!parameter.isfinite().all().item<bool>()) return false;
  }
  return true;
}

// Steps on good batches, with a bad one in the middle.
struct Training {
  explicit Training(const KfacOptions& options)
      : kfac(*model, options, log.logger()), optimizer(model->parameters(), 0.01) {}
  void step(const Batch& batch) {
    optimizer.zero_grad();
    loss_of(model, batch).backward();
    kfac.step(0.01);
    optimizer.step();
  }
  CapturedLog log;
  TinyNet model;
  Preconditioner kfac;
  torch::optim::SGD optimizer;
};

TEST(KfacTrouble, ANanInABatchIsLeftOutOfTheFactorsAndOfTheParameters) {
  torch::manual_seed(1);
  Training run({});
  run.step(random_batch(4));
  Batch bad = random_batch(4);
  bad.images[2][1][3][3] = std::nan("");
  run.step(bad);
  run.step(bad);
  run.step(random_batch(4));
  const KfacCounters counters = run.kfac.counters();
  EXPECT_TRUE(all_finite(*run.model));
  EXPECT_EQ(counters.nonfinite_gradients, 2);
  // All six factors of both bad steps: the NaN reaches every layer through the batch statistics.
  EXPECT_EQ(counters.nonfinite_factors, 12);
  EXPECT_EQ(counters.factor_updates, 12);
  const auto lines = run.log.lines();
  // One line for six factors and one for the gradient, though it happened twice.
  EXPECT_EQ(lines.size(), 2);
  EXPECT_THAT(
      lines, testing::Contains(AllOf(HasSubstr("A of conv (dimension 19)"),
                                     HasSubstr("G of out (dimension 3)"), HasSubstr("at step 1"))));
}

TEST(KfacTrouble, TheFirstBatchMayBeBad) {
  torch::manual_seed(2);
  Training run({});
  Batch bad = random_batch(4);
  bad.images.fill_(std::numeric_limits<double>::infinity());
  run.step(bad);
  EXPECT_TRUE(all_finite(*run.model));
  run.step(random_batch(4));
  run.step(random_batch(4));
  EXPECT_TRUE(all_finite(*run.model));
  EXPECT_EQ(run.kfac.counters().nonfinite_gradients, 1);
}

TEST(KfacTrouble, ARankOneFactorWithoutDampingIsInverted) {
  nn::Linear layer(nn::LinearOptions(3, 2).bias(false));
  layer->to(test_device(), at::kDouble);
  CapturedLog log;
  Preconditioner kfac(*layer, {.damping = 0, .kl_clip = 0}, log.logger());
  // One example: A and G have rank one.
  const at::Tensor x = torch::tensor({{1.0, 2.0, 3.0}}, test_options(at::kDouble));
  layer(x).square().sum().backward();
  const at::Tensor before = layer->weight.grad().clone();
  kfac.step();
  const KfacCounters counters = kfac.counters();
  EXPECT_EQ(counters.inverses_kept, 0);
  EXPECT_EQ(counters.layers_scaled, 0);
  const at::Tensor after = layer->weight.grad();
  EXPECT_TRUE(after.isfinite().all().item<bool>());
  // V = G⁻¹·g·aᵀ·A⁻¹ with A = aaᵀ, G = ggᵀ: along the gradient, divided by |a|²·|g|². Damping of
  // four roundings of the trace leaves about one digit of it.
  const double length = before.square().sum().item<double>();
  EXPECT_NEAR((after * before).sum().item<double>() / length, 1 / length, 0.3 / length);
}

// Two layers from the first step on, and a third from the second, when no inverses are due.
struct LateNet : nn::Module {
  LateNet() {
    first = register_module("first", nn::Linear(4, 5));
    second = register_module("second", nn::Linear(5, 3));
    late = register_module("late", nn::Linear(3, 3));
    to(test_device(), at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, bool with_late) {
    const at::Tensor y = second(torch::tanh(first(x)));
    return with_late ? late(torch::tanh(y)) : y;
  }
  nn::Linear first = nullptr;
  nn::Linear second = nullptr;
  nn::Linear late = nullptr;
};

double squared(const nn::Linear& layer, const std::vector<at::Tensor>& with) {
  return (layer->weight.grad() * with[0]).sum().item<double>() +
         (layer->bias.grad() * with[1]).sum().item<double>();
}

TEST(KfacTrouble, ALayerWithoutInversesTakesItsGradientScaledLikeItsNeighbours) {
  torch::manual_seed(5);
  LateNet model;
  CapturedLog log;
  Preconditioner kfac(model, {.kl_clip = 0, .inverse_interval = 10}, log.logger());
  const at::Tensor x = torch::randn({6, 4}, test_options(at::kDouble));
  const auto pass = [&](bool with_late) {
    model.zero_grad();
    model.forward(x, with_late).square().mean().backward();
  };
  pass(false);
  kfac.step();
  double scale = 0;
  for (int step = 1; step <= 2; ++step) {
    pass(true);
    const auto before = [](const nn::Linear& layer) {
      return std::vector<at::Tensor>{layer->weight.grad().clone(), layer->bias.grad().clone()};
    };
    const auto first = before(model.first);
    const auto second = before(model.second);
    const auto late = before(model.late);
    kfac.step();
    const auto quotient = [](const nn::Linear& layer, const std::vector<at::Tensor>& gradient) {
      return squared(layer, {layer->weight.grad(), layer->bias.grad()}) / squared(layer, gradient);
    };
    scale = std::sqrt(quotient(model.first, first) * quotient(model.second, second));
    EXPECT_TRUE(torch::allclose(model.late->weight.grad(), scale * late[0]));
    EXPECT_TRUE(torch::allclose(model.late->bias.grad(), scale * late[1]));
  }
  EXPECT_GT(std::abs(std::log(scale)), 0.1);  // a scale that shows
  EXPECT_EQ(kfac.counters().layers_scaled, 2);
  ASSERT_EQ(log.lines().size(), 1);  // though it happened twice
  EXPECT_THAT(log.lines()[0],
              AllOf(HasSubstr("layers without inverses at step 1"), HasSubstr(": late;")));
}

// A last layer that begins with zeros lets no gradient through: G of the layers below is zero when
// inverses are made, which says nothing of their curvature.
TEST(KfacTrouble, AFactorOfZerosIsNoInverse) {
  torch::manual_seed(6);
  LateNet model;
  CapturedLog log;
  {
    const c10::NoGradGuard no_grad;
    model.second->weight.zero_();
  }
  Preconditioner kfac(model, {.kl_clip = 0, .inverse_interval = 10}, log.logger());
  const at::Tensor x = torch::randn({6, 4}, test_options(at::kDouble));
  const auto pass = [&] {
    model.zero_grad();
    (model.forward(x, false) - 1).square().mean().backward();
  };
  pass();
  kfac.step();
  EXPECT_EQ(kfac.counters().layers_scaled, 0);  // there was no gradient to scale
  EXPECT_EQ(kfac.counters().inverses_kept, 0);
  {
    const c10::NoGradGuard no_grad;
    model.second->weight.fill_(0.1);
  }
  pass();
  const at::Tensor before = model.first->weight.grad().clone();
  kfac.step();
  EXPECT_EQ(kfac.counters().layers_scaled, 1);
  const at::Tensor quotients = model.first->weight.grad() / before;
  EXPECT_TRUE(torch::allclose(quotients, quotients[0][0].expand_as(quotients)));
}

TEST(KfacTrouble, AnOverflowedGradientSkipsTheStep) {
  torch::manual_seed(3);
  Training run({});
  run.step(random_batch(4));
  const auto parameters = clones(run.model->parameters());
  run.optimizer.zero_grad();
  loss_of(run.model, random_batch(4)).backward();
  run.model->norm->bias.mutable_grad().fill_(std::numeric_limits<double>::infinity());
  run.kfac.step(0.01);
  for (const at::Tensor& gradient : gradients(*run.model)) {
    EXPECT_TRUE(gradient.eq(0).all().item<bool>());
  }
  run.optimizer.step();
  EXPECT_TRUE(same_bits(clones(run.model->parameters()), parameters));
  EXPECT_EQ(run.kfac.counters().nonfinite_gradients, 1);
  EXPECT_EQ(run.kfac.counters().nonfinite_factors, 0);
}

// With nothing to compare with, the scale is 1.
TEST(KfacTrouble, AGradientWithoutACaptureIsCountedAndKept) {
  torch::manual_seed(4);
  Training run({});
  run.optimizer.zero_grad();
  run.model->eval();  // the forward pass is not captured, but gradients flow
  loss_of(run.model, random_batch(4)).backward();
  const auto before = gradients(*run.model);
  run.kfac.step(0.01);
  EXPECT_TRUE(same_bits(gradients(*run.model), before));
  EXPECT_EQ(run.kfac.counters().layers_without_factors, 3);
  EXPECT_EQ(run.kfac.counters().layers_scaled, 3);
  ASSERT_EQ(run.log.lines().size(), 1);
  EXPECT_THAT(run.log.lines()[0], HasSubstr("no call was seen: conv, hidden, out;"));
}

}  // namespace
}  // namespace spdkfac
