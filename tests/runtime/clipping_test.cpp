// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/clipping.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/device.h"

namespace spdkfac {
namespace {

using support::test_options;

// A parameter whose preconditioned gradient is V = 3·∇W.
struct ClippedOne {
  at::Tensor parameter = torch::zeros({4}, test_options(at::kDouble)).requires_grad_();
  at::Tensor preconditioned = torch::tensor({3.0, -6.0, 9.0, 12.0}, test_options(at::kDouble));
  double inner = (9 + 36 + 81 + 144) / 3.0;  // ⟨V, ∇W⟩ = ‖V‖²/3

  ClippedOne() { parameter.mutable_grad() = preconditioned.clone(); }
  // What V was multiplied with.
  double clipped(double kl_clip, double rate, const Momentum& momentum) {
    return clipped({kl_clip, rate, momentum});
  }
  // With the rate in a tensor, whatever number step() is told.
  double clipped_by_tensor(double kl_clip, double rate, const Momentum& momentum) {
    return clipped({.kl_clip = kl_clip,
                    .learning_rate = 7,
                    .momentum = momentum,
                    .rate = torch::full({}, rate, test_options(at::kDouble))});
  }

 private:
  double clipped(const runtime::ClipLimits& limits) {
    runtime::clip_gradients({{0, {parameter}, torch::full({}, inner, test_options(at::kDouble))}},
                            limits, {});
    return (parameter.grad() / preconditioned)[0].item<double>();
  }
};

constexpr double kUpdateRate = 0.1;
constexpr double kUpdateLimit = 0.5;

// lr²·⟨u, ∇W⟩ of an update u along V is to be κ.
TEST(Clipping, LimitsAnUpdateWithoutMomentum) {
  ClippedOne layer;
  const double scale = layer.clipped(kUpdateLimit, kUpdateRate, {});
  EXPECT_NEAR(kUpdateRate * kUpdateRate * scale * scale * layer.inner, kUpdateLimit, 1e-12);
}

TEST(Clipping, LimitsTheWholeUpdateWithMomentum) {
  for (const double old : {0.1, 0.3, -0.2}) {
    ClippedOne layer;
    const Momentum momentum{
        .taken = 1, .carried = 0.9, .buffers = {{layer.parameter, old * layer.preconditioned}}};
    const double scale = layer.clipped(kUpdateLimit, kUpdateRate, momentum);
    ASSERT_GT(scale, 0);
    ASSERT_LT(scale, 1);
    const double update = scale + 0.9 * old;  // along V
    EXPECT_NEAR(kUpdateRate * kUpdateRate * update * update * layer.inner, kUpdateLimit, 1e-6)
        << old;
  }
}

TEST(Clipping, TakesNothingWhereMomentumAloneIsLongEnough) {
  ClippedOne layer;
  const Momentum momentum{
      .taken = 1, .carried = 0.9, .buffers = {{layer.parameter, 100 * layer.preconditioned}}};
  EXPECT_EQ(layer.clipped(kUpdateLimit, kUpdateRate, momentum), 0);
}

TEST(Clipping, AShortUpdateIsNotClippedByMomentum) {
  ClippedOne layer;
  const Momentum momentum{
      .taken = 1, .carried = 0.9, .buffers = {{layer.parameter, 0.5 * layer.preconditioned}}};
  EXPECT_EQ(layer.clipped(/*kl_clip=*/1e6, kUpdateRate, momentum), 1);
  ClippedOne unlimited;
  EXPECT_EQ(unlimited.clipped(/*kl_clip=*/0, kUpdateRate, momentum), 1);
}

TEST(Clipping, ARateInATensorCountsAsTheNumberDoes) {
  for (const double carried : {0.0, 0.9}) {
    for (const double rate : {kUpdateRate, 1e-3, 0.0}) {
      ClippedOne by_number;
      ClippedOne by_tensor;
      const auto momentum = [&](const ClippedOne& layer) {
        return Momentum{.taken = 1,
                        .carried = carried,
                        .buffers = {{layer.parameter, 0.1 * layer.preconditioned}}};
      };
      const double expected = by_number.clipped(kUpdateLimit, rate, momentum(by_number));
      EXPECT_NEAR(by_tensor.clipped_by_tensor(kUpdateLimit, rate, momentum(by_tensor)), expected,
                  1e-12)
          << carried << " " << rate;
    }
  }
}

// The first layer has V = 2·∇W, the second no inverses: it takes twice its gradient. Both count.
TEST(Clipping, ALayerWithoutInversesCounts) {
  const at::Tensor first = torch::zeros({2}, test_options(at::kDouble)).requires_grad_();
  const at::Tensor second = torch::zeros({3}, test_options(at::kDouble)).requires_grad_();
  first.mutable_grad() = torch::tensor({2.0, 4.0}, test_options(at::kDouble));  // ∇W = (1, 2)
  second.mutable_grad() = torch::tensor({1.0, 1.0, 2.0}, test_options(at::kDouble));
  const auto number = [](double value) {
    return torch::full({}, value, test_options(at::kDouble));
  };
  const runtime::Clipped result =
      runtime::clip_gradients({{0, {first}, number(2 * 5)}, {1, {second}, number(-6)}},
                              {kUpdateLimit, kUpdateRate, Momentum{}}, {});
  const double inner = 2 * 5 + 2 * 6;
  const double scale = std::sqrt(kUpdateLimit / inner) / kUpdateRate;
  ASSERT_GT(scale, 1);  // not clipped
  EXPECT_TRUE(
      torch::allclose(second.grad(), torch::tensor({2.0, 2.0, 4.0}, test_options(at::kDouble))));
  EXPECT_FALSE(result.raw[0].item<bool>());
  EXPECT_TRUE(result.raw[1].item<bool>());
  EXPECT_FALSE(result.bad.item<bool>());
}

// With grafting and without a clip: two layers, the second of them without inverses.
TEST(Clipping, KeepsGraftedLengthsUnlessSomethingIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  struct Case {
    double inner;
    double other;
    bool bad;
  };
  // Sums of large numbers are finite.
  for (const auto& [inner, other, bad] :
       {Case{5, 1, false}, Case{5, 3e38, false}, Case{5, infinity, true}, Case{5, -infinity, true},
        Case{5, std::nan(""), true}, Case{infinity, 1, true}, Case{std::nan(""), 1, true}}) {
    const auto parameter = [](std::vector<float> gradient) {
      at::Tensor made = torch::zeros({2}, test_options(at::kFloat)).requires_grad_();
      made.mutable_grad() = torch::tensor(gradient).to(made.device());
      return made;
    };
    const at::Tensor first = parameter({2, 4});
    const at::Tensor second = parameter({-1, 3});
    const at::Tensor outside = parameter({static_cast<float>(other), 3e38F});
    const auto number = [](double value) {
      return torch::full({}, value, test_options(at::kDouble));
    };
    const runtime::Clipped result =
        runtime::clip_gradients({{0, {first}, number(inner)}, {1, {second}, number(-6)}},
                                {.learning_rate = 0.1, .momentum = {}, .grafted = true}, {outside});
    EXPECT_EQ(result.bad.item<bool>(), bad) << inner << " " << other;
    EXPECT_FALSE(result.raw[0].item<bool>());
    EXPECT_TRUE(result.raw[1].item<bool>());
    const double kept = bad ? 0 : 1;
    EXPECT_EQ(first.grad().sum().item<double>(), kept * 6) << inner << " " << other;
    EXPECT_EQ(second.grad().sum().item<double>(), kept * 2);
    const std::vector<float> left =
        bad ? std::vector<float>{0, 0} : std::vector<float>{static_cast<float>(other), 3e38F};
    EXPECT_TRUE(outside.grad().cpu().equal(torch::tensor(left)));
  }
}

TEST(Momentum, IsThatOfSgd) {
  const at::Tensor parameter = torch::ones({2}, test_options(at::kDouble)).requires_grad_();
  for (const bool nesterov : {false, true}) {
    torch::optim::SGD sgd({parameter},
                          torch::optim::SGDOptions(0.1).momentum(0.8).nesterov(nesterov));
    EXPECT_EQ(momentum_of(sgd).carried, 0);  // before the first update
    const auto update = [&](double gradient) {
      parameter.mutable_grad() = torch::full({2}, gradient, test_options(at::kDouble));
      const at::Tensor before = parameter.detach().clone();
      sgd.step();
      return ((before - parameter.detach()) / 0.1)[0].item<double>();
    };
    // torch begins with the whole gradient, which Nesterov's step takes twice.
    const double first = momentum_of(sgd).taken * 3;
    EXPECT_NEAR(update(3), first, 1e-12) << nesterov;
    const Momentum momentum = momentum_of(sgd);
    ASSERT_EQ(momentum.buffers.size(), 1);
    const double buffer = momentum.buffers[0].second[0].item<double>();
    const double predicted = momentum.taken * 5 + momentum.carried * buffer;
    EXPECT_NEAR(update(5), predicted, 1e-12) << nesterov;
  }
  torch::optim::Adam adam({parameter}, torch::optim::AdamOptions(0.1));
  adam.step();
  EXPECT_TRUE(momentum_of(adam).buffers.empty());
}

}  // namespace
}  // namespace spdkfac
