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
  // One line for each of six factors and one for the gradient, though it happened twice.
  EXPECT_EQ(lines.size(), 7);
  EXPECT_THAT(lines, testing::Contains(AllOf(HasSubstr("factor A of layer conv"),
                                             HasSubstr("dimension 19"), HasSubstr("at step 1"))));
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

TEST(KfacTrouble, ARankOneFactorWithoutDampingKeepsThePreviousInverse) {
  nn::Linear layer(nn::LinearOptions(3, 2).bias(false));
  layer->to(test_device(), at::kDouble);
  CapturedLog log;
  Preconditioner kfac(*layer, {.damping = 0, .kl_clip = 0}, log.logger());
  // One example: A and G have rank one, and no multiple of zero damping helps.
  const at::Tensor x = torch::tensor({{1.0, 2.0, 3.0}}, test_options(at::kDouble));
  layer(x).square().sum().backward();
  const at::Tensor before = layer->weight.grad().clone();
  kfac.step();
  const KfacCounters counters = kfac.counters();
  EXPECT_EQ(counters.inverses_kept, 2);
  EXPECT_GE(counters.inverse_retries, 2);
  // The inverses from before the first success are identities.
  EXPECT_TRUE(torch::allclose(layer->weight.grad(), before));
  EXPECT_THAT(log.lines(),
              testing::Contains(AllOf(HasSubstr("factor A"), HasSubstr("could not be inverted"))));
  EXPECT_THAT(log.lines(), testing::Contains(AllOf(HasSubstr("factor G"),
                                                   HasSubstr("keeps its previous inverse"))));
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
  EXPECT_THAT(run.log.lines(),
              testing::Contains(HasSubstr("layer conv has a gradient, but no call")));
}

}  // namespace
}  // namespace spdkfac
