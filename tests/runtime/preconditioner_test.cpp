// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/preconditioner.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "runtime/kfac_fixture.h"
#include "spdkfac/runtime/step_control.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;
namespace nn = torch::nn;

// Double precision and condition numbers below 1e4 leave ten digits.
constexpr double kTolerance = 1e-9;

double relative_difference(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual - expected).norm() / (expected.norm() + 1e-300)).item<double>();
}

// A and G of a Linear layer without positions, and V from the explicit Kronecker product:
// (G ⊗ A)⁻¹ applied to the gradient's rows, one after the other.
struct Reference {
  at::Tensor a;
  at::Tensor g;

  static Reference of(const at::Tensor& input, const at::Tensor& output_gradient, bool bias) {
    const std::int64_t examples = input.size(0);
    at::Tensor x = input;
    if (bias) x = torch::cat({x, torch::ones({examples, 1}, x.options())}, 1);
    const at::Tensor g = output_gradient * examples;
    return {torch::einsum("ni,nj->ij", {x, x}) / examples,
            torch::einsum("ni,nj->ij", {g, g}) / examples};
  }
  Reference blended(const Reference& next, double decay) const {
    return {decay * a + (1 - decay) * next.a, decay * g + (1 - decay) * next.g};
  }
  at::Tensor preconditioned(const at::Tensor& gradient, const KfacOptions& options) const {
    double damping_a = options.damping;
    double damping_g = options.damping;
    if (options.damping_mode == Damping::kPi) {
      const double pi =
          std::sqrt(a.diagonal().mean().item<double>() / g.diagonal().mean().item<double>());
      damping_a = pi * std::sqrt(options.damping);
      damping_g = std::sqrt(options.damping) / pi;
    }
    const at::Tensor damped_a = a + damping_a * torch::eye(a.size(0), a.options());
    const at::Tensor damped_g = g + damping_g * torch::eye(g.size(0), g.options());
    return torch::linalg_solve(torch::kron(damped_g, damped_a), gradient.reshape({-1}))
        .reshape(gradient.sizes());
  }
};

// One Linear layer: everything can be written down.
struct OneLayer {
  explicit OneLayer(bool bias) : layer(nn::LinearOptions(3, 2).bias(bias)), with_bias(bias) {
    layer->to(test_device(), at::kDouble);
  }
  // Forward and backward; the gradient of the output is returned.
  at::Tensor run(const at::Tensor& input, const at::Tensor& target, double share = 1) {
    const at::Tensor output = layer(input);
    output.retain_grad();
    ((output - target).square().sum() / input.size(0) * share).backward();
    return output.grad();
  }
  at::Tensor gradient() const {
    at::Tensor joined = layer->weight.grad().clone();
    if (with_bias) joined = torch::cat({joined, layer->bias.grad().clone().unsqueeze(1)}, 1);
    return joined;
  }
  nn::Linear layer;
  bool with_bias;
};

class PreconditionerFormula : public testing::TestWithParam<std::tuple<bool, Damping>> {};

TEST_P(PreconditionerFormula, ThreeStepsSolveWithTheExplicitKroneckerProduct) {
  torch::manual_seed(3);
  const auto [bias, damping_mode] = GetParam();
  OneLayer model(bias);
  KfacOptions options{
      .damping = 0.05, .damping_mode = damping_mode, .running_average = 0.7, .kl_clip = 0};
  Preconditioner kfac(*model.layer, options);
  std::optional<Reference> average;
  for (int step = 0; step < 3; ++step) {
    model.layer->zero_grad();
    const at::Tensor x = torch::randn({6, 3}, test_options(at::kDouble));
    const at::Tensor output_gradient =
        model.run(x, torch::randn({6, 2}, test_options(at::kDouble)));
    const Reference batch = Reference::of(x, output_gradient, bias);
    average = average ? average->blended(batch, options.running_average) : batch;
    const at::Tensor expected = average->preconditioned(model.gradient(), options);
    kfac.step();
    EXPECT_LT(relative_difference(model.gradient(), expected), kTolerance) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(BiasAndDamping, PreconditionerFormula,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Damping::kPlain, Damping::kPi)));

TEST(Preconditioner, KlClipScalesAllLayersByTheSameRoot) {
  torch::manual_seed(4);
  const Batch batch = random_batch(6);
  const double kappa = 1e-4;
  const double learning_rate = 0.5;
  std::vector<std::vector<at::Tensor>> results;
  double inner = 0;
  for (const double clip : {0.0, kappa}) {
    torch::manual_seed(5);
    TinyNet model;
    Preconditioner kfac(*model, {.kl_clip = clip});
    loss_of(model, batch).backward();
    const auto before = gradients(*model);
    kfac.step(learning_rate);
    results.push_back(gradients(*model));
    if (clip == 0) {
      // Conv and Linear layers are covered: parameters 0, 1 and 4 to 6; 2 and 3 are the norm's.
      for (const std::size_t index : {0, 1, 4, 5, 6}) {
        inner += (before[index] * results[0][index]).sum().item<double>();
      }
    }
  }
  const double expected =
      std::min(1.0, std::sqrt(kappa / (learning_rate * learning_rate * std::abs(inner))));
  ASSERT_LT(expected, 0.9);
  for (const std::size_t index : {0, 1, 4, 5, 6}) {
    EXPECT_LT(relative_difference(results[1][index], expected * results[0][index]), kTolerance);
  }
}

TEST(Preconditioner, LayersWithoutFactorsKeepTheirGradient) {
  TinyNet model;
  Preconditioner kfac(*model, {});
  loss_of(model, random_batch(4)).backward();
  const auto before = gradients(*model);
  kfac.step(0.1);
  EXPECT_TRUE(torch::equal(model->norm->weight.grad(), before[2]));
  EXPECT_TRUE(torch::equal(model->norm->bias.grad(), before[3]));
  EXPECT_FALSE(torch::equal(model->conv->weight.grad(), before[0]));
}

TEST(Preconditioner, SeveralBackwardPassesEqualTheJoinedBatch) {
  torch::manual_seed(6);
  const at::Tensor x = torch::randn({6, 3}, test_options(at::kDouble));
  const at::Tensor target = torch::randn({6, 2}, test_options(at::kDouble));
  at::Tensor joined;
  for (const bool split : {false, true}) {
    torch::manual_seed(7);
    OneLayer model(true);
    Preconditioner kfac(*model.layer, {.kl_clip = 0});
    if (split) {
      for (int part = 0; part < 3; ++part) {
        model.run(x.narrow(0, 2 * part, 2), target.narrow(0, 2 * part, 2), 1.0 / 3);
      }
    } else {
      model.run(x, target);
    }
    kfac.step();
    if (!split) joined = model.gradient();
    EXPECT_LT(relative_difference(model.gradient(), joined), kTolerance);
  }
}

TEST(Preconditioner, AForwardPassWithoutBackwardAveragesIntoAOnly) {
  // Two passes over different inputs, the first abandoned: A is the mean over both.
  torch::manual_seed(8);
  OneLayer model(false);
  KfacOptions options{.damping = 0.1, .kl_clip = 0};
  Preconditioner kfac(*model.layer, options);
  const at::Tensor abandoned = torch::randn({5, 3}, test_options(at::kDouble));
  model.layer(abandoned);
  const at::Tensor x = torch::randn({5, 3}, test_options(at::kDouble));
  const at::Tensor g = model.run(x, torch::zeros({5, 2}, test_options(at::kDouble)));
  Reference reference = Reference::of(x, g, false);
  reference.a = Reference::of(torch::cat({abandoned, x}), torch::cat({g, g}), false).a;
  const at::Tensor expected = reference.preconditioned(model.gradient(), options);
  kfac.step();
  EXPECT_LT(relative_difference(model.gradient(), expected), kTolerance);
}

TEST(Preconditioner, ALayerUsedTwiceAddsUp) {
  torch::manual_seed(9);
  nn::Linear layer(nn::LinearOptions(3, 3).bias(false));
  layer->to(test_device(), at::kDouble);
  KfacOptions options{.damping = 0.1, .kl_clip = 0};
  Preconditioner kfac(*layer, options);
  const at::Tensor x = torch::randn({4, 3}, test_options(at::kDouble));
  const at::Tensor first = layer(x);
  const at::Tensor second = layer(first);
  first.retain_grad();
  second.retain_grad();
  (second.square().sum() / 4).backward();
  const Reference one = Reference::of(x, first.grad(), false);
  const Reference two = Reference::of(first.detach(), second.grad(), false);
  const Reference sum{one.a + two.a, one.g + two.g};
  const at::Tensor expected = sum.preconditioned(layer->weight.grad(), options);
  kfac.step();
  EXPECT_LT(relative_difference(layer->weight.grad(), expected), kTolerance);
}

TEST(Preconditioner, TiedWeightsAreOneLayerThatAddsUp) {
  nn::Linear one(nn::LinearOptions(3, 3).bias(false));
  nn::Linear two(nn::LinearOptions(3, 3).bias(false));
  two->weight = one->weight;
  two->register_parameter("weight_alias", one->weight);
  nn::Sequential model(one, two);
  EXPECT_EQ(tracked_layers(*model).size(), 1);
}

TEST(Preconditioner, RefreshesFactorsAndInversesAtTheirIntervals) {
  TinyNet model;
  Preconditioner kfac(*model, {.factor_interval = 2, .inverse_interval = 3});
  std::vector<std::int64_t> factor_updates;
  std::vector<std::int64_t> inverse_updates;
  for (int step = 0; step < 7; ++step) {
    model->zero_grad();
    loss_of(model, random_batch(4)).backward();
    kfac.step(0.1);
    factor_updates.push_back(kfac.counters().factor_updates);
    inverse_updates.push_back(kfac.counters().inverse_updates);
  }
  // Three layers, two factors each; factors at steps 0, 2, 4, 6, inverses at 0, 3, 6.
  EXPECT_THAT(factor_updates, testing::ElementsAre(6, 6, 12, 12, 18, 18, 24));
  EXPECT_THAT(inverse_updates, testing::ElementsAre(6, 6, 6, 12, 12, 12, 18));
}

TEST(Preconditioner, InversesAreNotMadeAgainFromTheSameFactors) {
  TinyNet model;
  Preconditioner kfac(*model, {.factor_interval = 4, .inverse_interval = 1});
  for (int step = 0; step < 4; ++step) {
    model->zero_grad();
    loss_of(model, random_batch(4)).backward();
    kfac.step(0.1);
  }
  EXPECT_EQ(kfac.counters().inverse_updates, 6);
}

TEST(Preconditioner, AScaledLossYieldsTheSameFactors) {
  torch::manual_seed(12);
  const Batch batch = random_batch(4);
  std::vector<std::vector<at::Tensor>> results;
  for (const double scale : {1.0, 1024.0}) {  // powers of two: nothing is rounded
    torch::manual_seed(13);
    TinyNet model;
    Preconditioner kfac(*model, {});
    if (scale != 1)
      StepControl(kfac).set_loss_scale([&] { return torch::full({}, scale, at::kFloat); });
    (loss_of(model, batch) * scale).backward();
    for (const at::Tensor& parameter : model->parameters()) parameter.grad().div_(scale);
    kfac.step(0.1);
    results.push_back(gradients(*model));
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

TEST(Preconditioner, DiscardForgetsABatch) {
  torch::manual_seed(10);
  const Batch wanted = random_batch(4);
  const Batch unwanted = random_batch(4);
  std::vector<std::vector<at::Tensor>> results;
  for (const bool disturb : {false, true}) {
    torch::manual_seed(11);
    TinyNet model;
    Preconditioner kfac(*model, {});
    if (disturb) {
      loss_of(model, unwanted).backward();
      kfac.discard();
      model->zero_grad();
    }
    loss_of(model, wanted).backward();
    kfac.step(0.1);
    results.push_back(gradients(*model));
  }
  for (std::size_t index = 0; index < results[0].size(); ++index) {
    EXPECT_LT(relative_difference(results[1][index], results[0][index]), kTolerance);
  }
}

TEST(Preconditioner, SeveralInOneProcessDoNotDisturbEachOther) {
  torch::manual_seed(12);
  const Batch batch = random_batch(4);
  torch::manual_seed(13);
  TinyNet alone;
  std::vector<at::Tensor> expected;
  {
    Preconditioner kfac(*alone, {});
    loss_of(alone, batch).backward();
    kfac.step(0.1);
    expected = gradients(*alone);
  }
  torch::manual_seed(13);
  TinyNet one;
  TinyNet other;
  Preconditioner first(*one, {});
  Preconditioner second(*other, {.damping = 1, .convention = Convention::kPaper});
  loss_of(other, random_batch(3)).backward();
  loss_of(one, batch).backward();
  second.step(0.1);
  first.step(0.1);
  EXPECT_TRUE(same_bits(gradients(*one), expected));
}

TEST(Preconditioner, OneRankFollowsAPlanWithoutMessages) {
  TinyNet model;
  Preconditioner kfac(*model, {});
  EXPECT_FALSE(kfac.plan().has_value());
  loss_of(model, random_batch(4)).backward();
  kfac.step(0.1);
  ASSERT_TRUE(kfac.plan().has_value());
  EXPECT_EQ(kfac.plan()->world, 1);
  EXPECT_TRUE(kfac.plan()->messages.empty());
  EXPECT_EQ(kfac.plan()->placements.size(), 6U);
}

TEST(Preconditioner, ALayerThatIsCalledFirstInALaterStepIsCovered) {
  torch::manual_seed(15);
  OneLayer early(false);
  OneLayer late(false);
  nn::Sequential both(early.layer, late.layer);
  KfacOptions options{.damping = 0.1, .kl_clip = 0};
  Preconditioner kfac(*both, options);
  const at::Tensor x = torch::randn({6, 3}, test_options(at::kDouble));
  early.run(x, torch::zeros({6, 2}, test_options(at::kDouble)));
  kfac.step();
  both->zero_grad();
  const at::Tensor g = late.run(x, torch::zeros({6, 2}, test_options(at::kDouble)));
  const at::Tensor expected = Reference::of(x, g, false).preconditioned(late.gradient(), options);
  kfac.step();
  EXPECT_LT(relative_difference(late.gradient(), expected), kTolerance);
}

TEST(Preconditioner, AFrozenOrUnusedLayerIsLeftAlone) {
  TinyNet model;
  model->hidden->weight.requires_grad_(false);
  Preconditioner kfac(*model, {});
  loss_of(model, random_batch(4)).backward();
  kfac.step(0.1);
  EXPECT_FALSE(model->hidden->weight.grad().defined());
  EXPECT_EQ(kfac.counters().layers_without_factors, 0);
}

TEST(Preconditioner, WithoutDampingInputsMayBeScaledAtWill) {
  // With x' = xD and W' = WD⁻¹: A' = DAD, ∇W' = ∇W·D, so V' = V·D⁻¹ and V'x' = Vx: the update of
  // the function does not change, however badly scaled the inputs are. Gradient descent's does.
  torch::manual_seed(14);
  const at::Tensor scales = torch::logspace(-2, 2, 3, 10, at::kDouble).to(test_device());
  const at::Tensor x = torch::randn({20, 3}, at::kDouble).to(test_device());
  const at::Tensor target = torch::randn({20, 2}, at::kDouble).to(test_device());
  OneLayer plain(false);
  OneLayer scaled(false);
  {
    const torch::NoGradGuard no_grad;
    scaled.layer->weight.copy_(plain.layer->weight / scales);
  }
  Preconditioner kfac(*plain.layer, {.damping = 0, .kl_clip = 0});
  Preconditioner kfac_scaled(*scaled.layer, {.damping = 0, .kl_clip = 0});
  plain.run(x, target);
  scaled.run(x * scales, target);
  const at::Tensor descent = torch::mm(x, plain.gradient().t());
  const at::Tensor descent_scaled = torch::mm(x * scales, scaled.gradient().t());
  EXPECT_GT(relative_difference(descent_scaled, descent), 1);
  kfac.step();
  kfac_scaled.step();
  // Damping is at least four roundings of the trace, which is some 1e8 times A' of the first input.
  const double least_damping = 4 * std::numeric_limits<double>::epsilon() * 1e8;
  EXPECT_LT(relative_difference(torch::mm(x * scales, scaled.gradient().t()),
                                torch::mm(x, plain.gradient().t())),
            10 * least_damping);
}

TEST(Preconditioner, ReportsItsMemory) {
  OneLayer model(true);
  Preconditioner kfac(*model.layer, {.kl_clip = 0});
  model.run(torch::randn({6, 3}, test_options(at::kDouble)),
            torch::zeros({6, 2}, test_options(at::kDouble)));
  kfac.step();
  // A is 4x4, G 2x2; the batch sums are of that size, too; three buffers for the 2x4 gradient, two
  // of which have 64 elements on a GPU.
  EXPECT_EQ(kfac.memory().factors, Bytes(8 * (16 + 4)));
  EXPECT_EQ(kfac.memory().inverses, Bytes(8 * (16 + 4)));
  // A GPU inverts both in one batch, padded to 64x64, with as much to work in.
  const std::int64_t batch = on_cuda() ? 2 * 2 * 64 * 64 * 8 : 0;
  const std::int64_t gradients = on_cuda() ? 8 * (8 + 2 * 64) : 3 * 8 * 8;
  EXPECT_EQ(kfac.memory().buffers, Bytes(8 * (16 + 4) + gradients + batch));
}

TEST(Preconditioner, RefusesOptionsAndCallsThatMakeNoSense) {
  nn::Linear layer(2, 2);
  const auto with = [&](KfacOptions options) {
    return [&layer, options] { Preconditioner kfac(*layer, options); };
  };
  expect_config_error(with({.damping = -1}),
                      "kfac: damping=-1; pass a finite number of at least 0");
  expect_config_error(with({.running_average = 1}),
                      "kfac: running_average=1; pass a number from 0 to below 1");
  expect_config_error(with({.kl_clip = std::nan("")}), "kfac: kl_clip=nan; pass");
  expect_config_error(with({.factor_interval = 0}),
                      "kfac: factor_interval=0; pass at least 1 step");
  expect_config_error(with({.inverse_interval = -3}),
                      "kfac: inverse_interval=-3; pass at least 1 step");
  expect_config_error(with({.patch_memory = Bytes(10)}),
                      "kfac: patch_memory=10; pass at least 1 MiB");
  nn::Sequential no_layers(nn::ReLU{});
  expect_config_error([&] { Preconditioner kfac(*no_layers); },
                      "no trainable layer that K-FAC covers");
  Preconditioner kfac(*layer);
  expect_config_error([&] { kfac.step(); }, "kl_clip needs the learning rate");
  expect_config_error([&] { kfac.step(-1); }, "step(-1); pass the optimizer's learning rate");
}

}  // namespace
}  // namespace spdkfac
