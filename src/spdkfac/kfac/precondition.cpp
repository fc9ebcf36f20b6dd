// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/precondition.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/gradients_cuda.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/two_sided.h"

namespace spdkfac::kfac {
namespace {

at::Tensor bias_part(const at::Tensor& joined) { return joined.select(2, joined.size(2) - 1); }

// A layer with a bias has the column also when the bias has no gradient.
bool has_bias_column(const at::Tensor& joined, const at::Tensor& weight) {
  const std::int64_t elements = weight.defined() ? weight.numel() : 0;
  const bool column = joined.numel() != elements;
  SPDKFAC_CHECK(joined.dim() == 3 &&
                    joined.numel() == elements + (column ? joined.size(0) * joined.size(1) : 0),
                "a joined gradient has another size than its parts");
  return column;
}

// The part of a joined gradient that belongs to the weight, in the shape of `parts` (by_outputs).
at::Tensor weight_part(const at::Tensor& joined, const at::Tensor& parts) {
  return joined.narrow(2, 0, parts.numel() / (joined.size(0) * joined.size(1))).view(parts.sizes());
}

// The rows of a joined gradient that belong to a parameter of the units: `place` is 0 for the
// first.
at::Tensor unit_rows_of(const at::Tensor& joined, const at::Tensor& parameter, std::int64_t place) {
  return joined.view({parameter.numel(), -1}).select(1, place).view(parameter.sizes());
}

// What the kernel for many tensors takes.
bool all_simple(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& one) {
    return one.is_cuda() && one.is_non_overlapping_and_dense() &&
           (one.scalar_type() == at::kFloat || one.scalar_type() == at::kDouble);
  });
}

}  // namespace

at::Tensor by_outputs(const at::Tensor& weight, WeightLayout layout, std::int64_t groups) {
  const at::Tensor grouped = weight.unflatten(0, {groups, -1});
  return layout == WeightLayout::kOutIn ? grouped : grouped.transpose(1, 2);
}

void join_gradient(const at::Tensor& weight, const at::Tensor& bias, at::Tensor joined,
                   WeightLayout layout) {
  if (layout == WeightLayout::kUnits) {
    joined.zero_();  // a bias may have no gradient
    if (weight.defined()) unit_rows_of(joined, weight, 0).copy_(weight);
    if (bias.defined()) unit_rows_of(joined, bias, -1).copy_(bias);
    return;
  }
  const bool column = has_bias_column(joined, weight);
  if (weight.defined()) {
    const at::Tensor parts = by_outputs(weight, layout, joined.size(0));
    weight_part(joined, parts).copy_(parts);
  }
  if (bias.defined()) {
    bias_part(joined).copy_(bias.view({joined.size(0), joined.size(1)}));
  } else if (column) {
    bias_part(joined).zero_();
  }
}

void split_gradient(const at::Tensor& joined, at::Tensor weight, at::Tensor bias,
                    WeightLayout layout) {
  if (layout == WeightLayout::kUnits) {
    if (weight.defined()) weight.copy_(unit_rows_of(joined, weight, 0));
    if (bias.defined()) bias.copy_(unit_rows_of(joined, bias, -1));
    return;
  }
  has_bias_column(joined, weight);
  if (weight.defined()) {
    const at::Tensor parts = by_outputs(weight, layout, joined.size(0));
    parts.copy_(weight_part(joined, parts));
  }
  if (bias.defined()) bias.copy_(bias_part(joined).reshape(bias.sizes()));
}

void precondition(const at::Tensor& gradient, const at::Tensor& inverse_a,
                  const at::Tensor& inverse_g, at::Tensor scratch, at::Tensor out) {
  multiply_rows(inverse_g, gradient, scratch);
  multiply_columns(inverse_a, scratch, out);
}

at::Tensor inner_product(const at::Tensor& gradient, const at::Tensor& inverse_a,
                         const at::Tensor& inverse_g, at::Tensor out) {
  const at::Tensor usable = is_usable(inverse_a).logical_and_(is_usable(inverse_g));
  if (!usable.is_cpu()) {
    out.copy_(at::where(usable, out, gradient));
  } else if (!usable.item<bool>()) {
    out.copy_(gradient);
  }
  const at::Tensor inner = at::dot(gradient.view({-1}), out.view({-1})).to(at::kDouble);
  return at::where(usable, at::where(inner < 0, at::zeros_like(inner), inner), -inner);
}

LayerScales scales_of_layers(const at::Tensor& inner, const at::Tensor& squares) {
  LayerScales result;
  result.raw = inner < 0;
  const at::Tensor known = (inner > 0).logical_and_(squares > 0);
  const at::Tensor logs = at::where(known, (squares / inner).log(), at::zeros_like(inner));
  const at::Tensor mean = (logs.sum() / known.sum().clamp_min(1)).exp();
  result.scales = at::where(result.raw, mean, at::ones_like(inner));
  result.inner = (inner.abs() * result.scales).sum();
  return result;
}

at::Tensor kl_clip_scale(const at::Tensor& inner, double kappa, double learning_rate) {
  if (kappa == 0 || learning_rate == 0) return at::ones_like(inner);
  const double limit = kappa / (learning_rate * learning_rate);
  // Where inner is 0 the quotient is infinite and the minimum 1.
  return (limit / inner.abs().to(at::kDouble)).sqrt().clamp_max(1).to(inner.scalar_type());
}

void scale_or_clear(const std::vector<at::Tensor>& scaled, const std::vector<at::Tensor>& others,
                    const at::Tensor& scales, const at::Tensor& bad) {
  if (bad.is_cuda() && all_simple(scaled) && all_simple(others)) {
    return scale_or_clear_cuda(scaled, others, scales.contiguous(), bad);
  }
  for (std::size_t index = 0; index < scaled.size(); ++index) {
    const at::Tensor& one = scaled[index];
    at::Tensor(one).mul_(scales[static_cast<std::int64_t>(index)].to(one.scalar_type()));
  }
  if (bad.is_cpu() && !bad.item<bool>()) return;
  for (const auto* list : {&scaled, &others}) {
    for (const at::Tensor& one : *list) one.masked_fill_(bad, 0);
  }
}

}  // namespace spdkfac::kfac
