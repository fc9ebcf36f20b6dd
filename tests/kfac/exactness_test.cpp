// SPDX-License-Identifier: Apache-2.0
// Where theory says that A⊗G is no approximation, it must equal the exact matrix.
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "spdkfac/kfac/factor.h"
#include "support/device.h"
#include "support/kronecker.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::kronecker;
using support::near_within;
using support::normal;
using support::stacked_columns;
using support::to_device;
using support::to_host;

// Some hundred products of numbers of size 10, in double precision.
constexpr double kTolerance = 1e-11;

enum class Nonlinearity { kTanh, kNone };

// Linear layers with biases. Remembers each layer's input and output of the last forward.
class Network {
 public:
  Network(const std::vector<std::int64_t>& widths, Nonlinearity nonlinearity)
      : nonlinearity_(nonlinearity) {
    for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
      const auto seed = static_cast<std::uint64_t>(10 * l);
      weights.push_back(to_device(normal(seed + 1, {widths[l + 1], widths[l]}), at::kDouble));
      biases.push_back(to_device(normal(seed + 2, {widths[l + 1]}), at::kDouble));
      weights.back().requires_grad_(true);
      biases.back().requires_grad_(true);
    }
  }

  at::Tensor forward(at::Tensor x) {
    inputs.clear();
    outputs.clear();
    for (std::size_t l = 0; l < weights.size(); ++l) {
      inputs.push_back(x);
      outputs.push_back(at::linear(x, weights[l], biases[l]));
      const bool hidden = l + 1 < weights.size();
      x = hidden && nonlinearity_ == Nonlinearity::kTanh ? at::tanh(outputs[l]) : outputs[l];
    }
    return x;
  }
  std::size_t layers() const { return weights.size(); }

  // The gradient [out, in | 1] of a number with respect to layer l.
  at::Tensor gradient(const at::Tensor& of, std::size_t l) const {
    const auto parts = torch::autograd::grad({of}, {weights[l], biases[l]}, {}, true);
    return to_host(at::cat({parts[0], parts[1].unsqueeze(1)}, 1));
  }
  // The gradient of a number with respect to the output of layer l.
  at::Tensor output_gradient(const at::Tensor& of, std::size_t l) const {
    return torch::autograd::grad({of}, {outputs[l]}, {}, true)[0];
  }

  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;

 private:
  Nonlinearity nonlinearity_;
};

kfac::LayerUse use_of(const at::Tensor& input) {
  return kfac::layer_use(input, std::nullopt, true);
}

at::Tensor outer(const at::Tensor& v) { return v.unsqueeze(1) * v.unsqueeze(0); }

// For one example the gradient of a Linear layer is the single product g·ãᵀ, so vec of it is ã⊗g
// and the empirical Fisher block vec·vecᵀ is ããᵀ⊗ggᵀ = A⊗G (N = S = 1). Any loss, any network
// around.
TEST(Exactness, EmpiricalFisherOfOneExampleIsTheKroneckerProduct) {
  Network network({5, 4, 6, 3}, Nonlinearity::kTanh);
  for (std::uint64_t example = 0; example < 5; ++example) {
    const at::Tensor x = to_device(normal(100 + example, {1, 5}), at::kDouble);
    const at::Tensor target =
        at::full({1}, static_cast<std::int64_t>(example % 3), support::test_options(at::kLong));
    const at::Tensor loss = at::cross_entropy_loss(network.forward(x), target);
    for (std::size_t l = 0; l < network.layers(); ++l) {
      const at::Tensor fisher = outer(stacked_columns(network.gradient(loss, l)));
      const kfac::LayerUse use = use_of(network.inputs[l]);
      const at::Tensor a = kfac::input_factor(network.inputs[l], use);
      const at::Tensor g = kfac::gradient_factor(network.output_gradient(loss, l), use);
      EXPECT_TRUE(near_within(kronecker(a[0], g[0]), fisher, kTolerance))
          << "example " << example << " layer " << l;
    }
  }
}

// The empirical Fisher of two examples is the mean of both blocks, and the mean of products is not
// the product of means: the equality above is a property of one example.
TEST(Exactness, EmpiricalFisherOfTwoExamplesIsNot) {
  Network network({3, 2}, Nonlinearity::kNone);
  const at::Tensor x = to_device(normal(1, {2, 3}), at::kDouble);
  const at::Tensor target = at::zeros({2}, support::test_options(at::kLong));
  at::Tensor fisher = at::zeros({8, 8}, at::kDouble);
  for (std::int64_t n = 0; n < 2; ++n) {
    const at::Tensor loss =
        at::cross_entropy_loss(network.forward(x.narrow(0, n, 1)), target.narrow(0, n, 1));
    fisher += outer(stacked_columns(network.gradient(loss, 0))) / 2;
  }
  const at::Tensor loss = at::cross_entropy_loss(network.forward(x), target);
  const kfac::LayerUse use = use_of(network.inputs[0]);
  const at::Tensor product =
      kronecker(kfac::input_factor(network.inputs[0], use)[0],
                kfac::gradient_factor(network.output_gradient(loss, 0), use)[0]);
  EXPECT_FALSE(at::allclose(product, fisher, 1e-3, 1e-6));
}

// Square loss ½|y−t|²: its Hessian in y is the identity, so the Gauss-Newton matrix of layer l is
// the mean over examples of JᵀJ with J = ∂y/∂vec(W). In a linear network y = M·(W·ã) + const, where
// the product M of the later weights is the same for every example: J = ãᵀ⊗M and JᵀJ = ããᵀ⊗MᵀM. The
// mean over examples then falls on ããᵀ alone: A⊗MᵀM. The rows of M are the backpropagated unit
// vectors of the output, MᵀM = Σ_k m_k·m_kᵀ, and the same at each example, so the factor G made
// from the backpropagated e_k (as gradients of the mean over examples of y_k) is m_k·m_kᵀ, summed
// over k.
class DeepLinearNetwork : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(DeepLinearNetwork, GaussNewtonBlockIsTheKroneckerProduct) {
  const std::int64_t examples = GetParam();
  Network network({4, 5, 3, 6, 3}, Nonlinearity::kNone);
  const at::Tensor x = to_device(normal(50, {examples, 4}), at::kDouble);
  const at::Tensor y = network.forward(x);
  for (std::size_t l = 0; l < network.layers(); ++l) {
    const kfac::LayerUse use = use_of(network.inputs[l]);
    const at::Tensor a = kfac::input_factor(network.inputs[l], use);
    at::Tensor g;
    at::Tensor gauss_newton;
    for (std::int64_t k = 0; k < y.size(1); ++k) {
      const at::Tensor unit =
          kfac::gradient_factor(network.output_gradient(y.select(1, k).mean(), l), use);
      g = g.defined() ? g + unit : unit;
      for (std::int64_t n = 0; n < examples; ++n) {
        // One row of J.
        const at::Tensor row = outer(stacked_columns(network.gradient(y[n][k], l)));
        gauss_newton = gauss_newton.defined() ? gauss_newton + row : row;
      }
    }
    gauss_newton /= static_cast<double>(examples);
    const double largest = gauss_newton.abs().max().item<double>();
    EXPECT_TRUE(near_within(kronecker(a[0], g[0]), gauss_newton, kTolerance * largest))
        << "layer " << l;
  }
}

// With a nonlinearity M differs between examples, and the equality is lost: only for one example it
// holds still.
TEST_P(DeepLinearNetwork, NonlinearityBreaksTheEqualityForMoreThanOneExample) {
  const std::int64_t examples = GetParam();
  Network network({4, 5, 3}, Nonlinearity::kTanh);
  const at::Tensor y = network.forward(to_device(normal(50, {examples, 4}), at::kDouble));
  const kfac::LayerUse use = use_of(network.inputs[0]);
  at::Tensor g = at::zeros({5, 5}, y.options().requires_grad(false));
  at::Tensor gauss_newton = at::zeros({25, 25}, at::kDouble);
  for (std::int64_t k = 0; k < y.size(1); ++k) {
    g += kfac::gradient_factor(network.output_gradient(y.select(1, k).mean(), 0), use)[0];
    for (std::int64_t n = 0; n < examples; ++n) {
      gauss_newton += outer(stacked_columns(network.gradient(y[n][k], 0)));
    }
  }
  gauss_newton /= static_cast<double>(examples);
  const at::Tensor product = kronecker(kfac::input_factor(network.inputs[0], use)[0], g);
  const double largest = gauss_newton.abs().max().item<double>();
  EXPECT_EQ(static_cast<bool>(near_within(product, gauss_newton, 1e-3 * largest)), examples == 1);
}

INSTANTIATE_TEST_SUITE_P(Batches, DeepLinearNetwork, ::testing::Values(1, 2, 7, 16));

}  // namespace
}  // namespace spdkfac
