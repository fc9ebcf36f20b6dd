// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/eigen_precondition.h"

#include <limits>

#include <ATen/ATen.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/eigenbasis.h"
#include "spdkfac/kfac/two_sided.h"

namespace spdkfac::kfac {
namespace {

// Qᵀ_G·gradient·Q_A.
at::Tensor to_basis(const at::Tensor& gradient, const LayerBasis& layer) {
  const at::Tensor half = at::empty(gradient.sizes(), layer.g.value.options());
  at::Tensor whole = at::empty_like(half);
  multiply_rows(layer.g.value, gradient, half, /*transposed=*/true);
  multiply_columns(layer.a.value, half, whole);
  return whole;
}

void from_basis(const at::Tensor& inside, const LayerBasis& layer, at::Tensor out) {
  const at::Tensor half = at::empty_like(inside);
  multiply_rows(layer.g.value, inside, half);
  multiply_columns(layer.a.value, half, out, /*transposed=*/true);
}

// For each group, [groups, 1, 1].
at::Tensor mean_of_groups(const at::Tensor& values) {
  return values.flatten(1).mean(1).view({-1, 1, 1});
}

at::Tensor corrected(const at::Tensor& moment, double beta, const at::Tensor& steps) {
  return moment / (1 - at::pow(beta, steps)).to(moment.scalar_type());
}

at::Tensor is_bad(const at::Tensor& gradient) { return gradient.isfinite().all().logical_not(); }

at::Tensor zero_if(const at::Tensor& bad, const at::Tensor& gradient) {
  return at::where(bad, at::zeros_like(gradient), gradient);
}

void add_square(const at::Tensor& gradient, const LayerBasis& layer, const AdamOptions& adam) {
  turn_moments(layer);
  const at::Tensor inside = to_basis(gradient, layer);
  layer.moments->second.mul_(adam.beta2).addcmul_(inside, inside, 1 - adam.beta2);
  layer.moments->steps.add_(1);
}

// The curvature along each pair of eigenvectors, without damping.
at::Tensor curvature(const LayerBasis& layer, const at::Tensor& products, const BasisRule& rule) {
  if (rule.solver == Solver::kEigen) return products;
  const at::Tensor squares =
      corrected(layer.moments->second, rule.adam.beta2, layer.moments->steps);
  const at::Tensor mean = mean_of_groups(squares);
  return at::where(mean > 0, squares * (mean_of_groups(products) / mean), products);
}

at::Tensor solve(const at::Tensor& gradient, const LayerBasis& layer, const BasisRule& rule,
                 at::Tensor out) {
  const at::Tensor of_a = eigenvalues_of(layer.a).unsqueeze(1);
  const at::Tensor of_g = eigenvalues_of(layer.g).unsqueeze(2);
  const at::Tensor products = of_g * of_a;
  const at::Tensor mean = mean_of_groups(of_g) * mean_of_groups(of_a);
  const at::Tensor damping =
      rule.mode == Damping::kRelative ? mean * rule.damping : at::full_like(mean, rule.damping);
  at::Tensor damped = curvature(layer, products, rule) + damping;
  // Without damping a direction of no curvature would take a step without end.
  const double unit = damped.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                          : std::numeric_limits<float>::epsilon();
  damped = at::maximum(damped, damped.amax({1, 2}, /*keepdim=*/true) * unit);
  from_basis(to_basis(gradient, layer) / damped, layer, out);

  const at::Tensor usable = mean.gt(0).all();
  out.copy_(at::where(usable, out, gradient));
  const at::Tensor inner = at::dot(gradient.reshape({-1}), out.view({-1})).to(at::kDouble);
  return at::where(usable, inner.clamp_min(0), -inner);
}

at::Tensor adam_step(const at::Tensor& gradient, const LayerBasis& layer, const AdamOptions& adam,
                     at::Tensor out) {
  const at::Tensor bad = is_bad(gradient);
  const at::Tensor finite = zero_if(bad, gradient);
  BasisMoments& moments = *layer.moments;
  add_square(finite, layer, adam);
  moments.first.lerp_(finite, 1 - adam.beta1);
  const at::Tensor first = corrected(moments.first, adam.beta1, moments.steps);
  const at::Tensor second = corrected(moments.second, adam.beta2, moments.steps);
  from_basis(to_basis(first, layer) / (second.sqrt() + adam.epsilon), layer, out);
  out.masked_fill_(bad, std::numeric_limits<double>::quiet_NaN());
  const at::Tensor inner = at::dot(first.view({-1}), out.view({-1})).to(at::kDouble);
  return at::where(inner < 0, at::zeros_like(inner), inner);  // NaN stays
}

}  // namespace

BasisMoments::BasisMoments(at::IntArrayRef shape, const at::TensorOptions& options, Solver solver)
    : first(solver == Solver::kAdam ? at::zeros(shape, options) : at::empty({0}, options)),
      second(at::zeros(shape, options)),
      steps(at::zeros({}, options.dtype(at::kDouble))) {}

void turn_moments(const LayerBasis& layer) {
  if (layer.moments == nullptr) return;
  at::Tensor& second = layer.moments->second;
  if (layer.g.turned.defined()) {
    const at::Tensor old = second.clone();
    multiply_rows(layer.g.turned, old, second, /*transposed=*/true);
    layer.g.turned.reset();
  }
  if (layer.a.turned.defined()) {
    const at::Tensor old = second.clone();
    multiply_columns(layer.a.turned, old, second);
    layer.a.turned.reset();
  }
}

void observe(const at::Tensor& gradient, const LayerBasis& layer, const BasisRule& rule) {
  add_square(zero_if(is_bad(gradient), gradient), layer, rule.adam);
}

at::Tensor precondition_in_basis(const at::Tensor& gradient, const LayerBasis& layer,
                                 const BasisRule& rule, at::Tensor out) {
  SPDKFAC_CHECK((rule.solver == Solver::kEigen) == (layer.moments == nullptr),
                "moments do not fit the solver");
  if (rule.solver == Solver::kAdam) return adam_step(gradient, layer, rule.adam, out);
  return solve(gradient, layer, rule, out);
}

}  // namespace spdkfac::kfac
