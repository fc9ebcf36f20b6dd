// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/graft.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/device.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using kfac::AdamMoments;
using kfac::GraftedLayer;
using support::near_within;
using support::to_device;

constexpr AdamOptions kAdam{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-8};
// ε stands inside √v̂+ε in torch and outside the correction here: about ε/√v of a length.
constexpr double kEpsilonTolerance = 1e-6;

at::Tensor doubles(const std::vector<double>& values) {
  return to_device(at::tensor(values, at::kDouble), at::kDouble);
}

AdamMoments moments_for(std::int64_t elements) {
  return {elements, at::device(support::test_device()).dtype(at::kDouble)};
}

TEST(Graft, LengthsOfGradientsAreThoseOfWholeLayers) {
  // 3-4-5 over two tensors, and a layer of one.
  const std::vector<GraftedLayer> layers = {{{doubles({3}), doubles({0, 4})}}, {{doubles({2, 0})}}};
  EXPECT_TRUE(near_within(kfac::gradient_lengths(layers), doubles({5, 2}), 1e-12));
}

TEST(Graft, GivesEachLayerItsLengthAndKeepsDirections) {
  const at::Tensor weight = doubles({3, 0});
  const at::Tensor bias = doubles({4});
  const at::Tensor zero = doubles({0, 0});
  kfac::set_lengths({{{weight, bias}}, {{zero}}}, doubles({10, 7}));
  EXPECT_TRUE(near_within(weight, doubles({6, 0}), 1e-12));
  EXPECT_TRUE(near_within(bias, doubles({8}), 1e-12));
  EXPECT_TRUE(near_within(zero, doubles({0, 0}), 0));
}

// torch's Adam is the reference: after each step its update divided by the rate is Adam's step.
TEST(Graft, LengthsOfAdamAreThoseOfTorchsSteps) {
  torch::manual_seed(3);
  std::vector<at::Tensor> parameters;
  // A weight of three rows with its bias, and a weight alone.
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{3, 2}, {3}, {4}}) {
    parameters.push_back(torch::zeros(sizes, at::kDouble).requires_grad_());
  }
  const double rate = 1.0;
  torch::optim::Adam adam(
      parameters, torch::optim::AdamOptions(rate).betas({kAdam.beta1, kAdam.beta2}).eps(1e-8));
  AdamMoments first = moments_for(9);  // the first layer has two tensors
  AdamMoments second = moments_for(4);
  for (int step = 0; step < 4; ++step) {
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> before;
    for (at::Tensor& parameter : parameters) {
      parameter.mutable_grad() = torch::randn_like(parameter);
      gradients.push_back(parameter.grad().detach().clone().to(support::test_device()));
      before.push_back(parameter.detach().clone());
    }
    const at::Tensor lengths = kfac::adam_lengths(
        {{{gradients[0], gradients[1]}, &first}, {{gradients[2]}, &second}}, kAdam);
    adam.step();
    const auto square = [&](std::size_t i) {
      return (parameters[i].detach() - before[i]).square().sum().item<double>();
    };
    EXPECT_TRUE(near_within(lengths,
                            doubles({std::sqrt(square(0) + square(1)), std::sqrt(square(2))}),
                            kEpsilonTolerance))
        << "step " << step;
    // What is to be preconditioned is the first moment.
    const at::Tensor matrix = first.first.view({3, 3});
    EXPECT_TRUE(torch::equal(gradients[0], matrix.narrow(1, 0, 2)));
    EXPECT_TRUE(torch::equal(gradients[1], matrix.select(1, 2)));
    EXPECT_TRUE(torch::equal(gradients[2], second.first));
  }
}

TEST(Graft, AGradientThatIsNotFiniteIsShownAndDoesNotStayInTheMoments) {
  AdamMoments one = moments_for(2);
  AdamMoments other = moments_for(1);
  const at::Tensor bad = doubles({1, std::numeric_limits<double>::infinity()});
  const at::Tensor good = doubles({1});
  kfac::adam_lengths({{{bad}, &one}, {{good}, &other}}, kAdam);
  EXPECT_TRUE(bad.isnan().all().item<bool>());
  EXPECT_TRUE(good.isnan().all().item<bool>());
  for (const AdamMoments* moments : {&one, &other}) {
    EXPECT_TRUE(moments->first.eq(0).all().item<bool>());
    EXPECT_TRUE(moments->second.eq(0).all().item<bool>());
  }
}

TEST(Graft, HalfPrecisionGradientsHaveMomentsInFloat) {
  AdamMoments moments(2, at::device(support::test_device()).dtype(at::kFloat));
  const at::Tensor gradient = to_device(at::tensor({0.5, -2.0}), at::kHalf);
  const at::Tensor lengths = kfac::adam_lengths({{{gradient}, &moments}}, kAdam);
  // The first step of Adam is a sign for each element.
  EXPECT_NEAR(lengths.item<double>(), std::sqrt(2.0), 1e-3);
  EXPECT_EQ(moments.first.scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace spdkfac
