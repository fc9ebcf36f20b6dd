// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/clipping.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include <ATen/ATen.h>

#include "spdkfac/kfac/layer_lengths.h"
#include "spdkfac/kfac/precondition.h"

namespace spdkfac::runtime {
namespace {

// Tensors that one group of kernels takes, so that what lies between them stays small.
constexpr std::size_t kTogether = 32;

std::vector<at::Tensor> gradients_of(const std::vector<ParameterPart>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const ParameterPart& parameter : parameters) {
    const at::Tensor gradient = parameter.gradient();
    if (!gradient.defined() || gradient.numel() == 0) continue;
    gradients.push_back(gradient.is_sparse() ? gradient._values() : gradient);
  }
  return gradients;
}

at::Tensor is_not_finite(const at::Tensor& sum) { return sum.isfinite().logical_not(); }

// Infinite or NaN where one of these gradients is; a double number, so that no sum overflows.
at::Tensor sum_of_largest(const std::vector<at::Tensor>& gradients) {
  return at::stack(at::_foreach_norm(gradients, std::numeric_limits<double>::infinity()))
      .sum(at::kDouble);
}

struct Gradients {
  std::vector<at::Tensor> tensors;
  std::vector<at::Tensor> buffers;  // of the momentum; undefined where there is none
  std::vector<std::size_t> layer_of;
};

Gradients gradients_of(const std::vector<ClippedLayer>& layers, const Momentum& momentum) {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> buffers;
  for (const auto& [parameter, buffer] : momentum.buffers) {
    buffers.emplace(parameter.unsafeGetTensorImpl(), buffer);
  }
  Gradients result;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (const ParameterPart& own : layers[layer].parameters) {
      const at::Tensor gradient = own.gradient();
      if (!gradient.defined()) continue;
      result.tensors.push_back(gradient);
      result.layer_of.push_back(layer);
      const auto found = buffers.find(own.parameter.unsafeGetTensorImpl());
      result.buffers.push_back(found == buffers.end() ? at::Tensor() : own.of(found->second));
    }
  }
  return result;
}

// ⟨b, V⟩ of all layers, [layers]: from the lengths of b + V, b and V.
at::Tensor products_with_buffers(const Gradients& gradients, const at::Tensor& squares) {
  const auto layers = static_cast<std::size_t>(squares.size(0));
  std::vector<at::Tensor> sums;
  std::vector<at::Tensor> old;
  for (std::size_t begin = 0; begin < gradients.tensors.size(); begin += kTogether) {
    const std::size_t end = std::min(begin + kTogether, gradients.tensors.size());
    std::vector<at::Tensor> tensors;
    std::vector<at::Tensor> buffers;
    for (std::size_t i = begin; i < end; ++i) {
      const at::Tensor& tensor = gradients.tensors[i];
      tensors.push_back(tensor);
      const at::Tensor& buffer = gradients.buffers[i];
      buffers.push_back(buffer.defined() ? buffer.to(tensor.options()) : at::zeros_like(tensor));
    }
    for (at::Tensor& one : kfac::lengths_of(buffers)) old.push_back(std::move(one));
    for (at::Tensor& one : kfac::lengths_of(at::_foreach_add(tensors, buffers))) {
      sums.push_back(std::move(one));
    }
  }
  const auto by_layer = [&](const std::vector<at::Tensor>& values) {
    return kfac::squares_by_layer(values, gradients.layer_of, layers, squares.device());
  };
  return (by_layer(sums) - by_layer(old) - squares).mul_(0.5);
}

// min(1, √(κ/inner)/lr) for an optimizer without momentum. With it the update is along ν·taken·V +
// carried·b, and what b adds to the limited length is its part along V: F·V = ∇W, so ⟨b, FV⟩/⟨V,
// FV⟩ = ⟨b, ∇W⟩/⟨V, ∇W⟩. Where ∇W is no longer there, ⟨b, ∇W⟩ of a layer is ⟨b, V⟩·⟨V, ∇W⟩/‖V‖²,
// which is the same for b along V. κ then limits the whole: ν·taken + carried·⟨b, ∇W⟩/inner ≤
// √(κ/inner)/lr.
at::Tensor clip_scale(const at::Tensor& inner, const at::Tensor& along, const ClipLimits& limits) {
  const bool held = limits.rate.defined();
  if (limits.kl_clip == 0 || (!held && limits.learning_rate == 0)) return at::ones_like(inner);
  if (!along.defined() && !held) {
    return kfac::kl_clip_scale(inner, limits.kl_clip, limits.learning_rate);
  }
  // A rate of 0 in a tensor makes the limit infinite and the scale 1.
  const at::Tensor length = (limits.kl_clip / inner).sqrt();
  const at::Tensor limit = held ? length / limits.rate : length / limits.learning_rate;
  const at::Tensor scale =
      along.defined() ? (limit - limits.momentum.carried * along / inner) / limits.momentum.taken
                      : limit;
  return at::where(inner > 0, scale.clamp(0, 1), at::ones_like(inner));
}

// All lengths stay as they are, so most of the little kernels that find others are left out.
Clipped clear_if_not_finite(const std::vector<ClippedLayer>& layers, const at::Tensor& inner,
                            const std::vector<ParameterPart>& others) {
  const at::Tensor slopes = inner.abs();
  std::vector<at::Tensor> gradients = gradients_of(others);
  at::Tensor sum = slopes.sum();
  if (!gradients.empty()) sum = sum + sum_of_largest(gradients);
  for (const ClippedLayer& layer : layers) {
    for (const at::Tensor& one : gradients_of(layer.parameters)) gradients.push_back(one);
  }
  const at::Tensor bad = is_not_finite(sum);
  kfac::scale_or_clear({}, gradients, at::empty({0}, inner.options()), bad);
  return {bad, inner < 0, slopes, slopes};
}

}  // namespace

std::vector<ClippedLayer> clipped_layers(const std::vector<TrackedLayer>& layers,
                                         const std::vector<at::Tensor>& inner) {
  std::vector<ClippedLayer> clipped;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (!inner[layer].defined()) continue;
    clipped.push_back({layer, own_parameters(layers[layer]), inner[layer]});
  }
  return clipped;
}

std::vector<ParameterPart> with_unclipped(const std::vector<TrackedLayer>& layers,
                                          const std::vector<at::Tensor>& inner,
                                          const std::vector<at::Tensor>& others) {
  std::vector<ParameterPart> all(others.begin(), others.end());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (inner[layer].defined()) continue;
    for (ParameterPart& own : own_parameters(layers[layer])) all.push_back(std::move(own));
  }
  return all;
}

Clipped clip_gradients(const std::vector<ClippedLayer>& layers, const ClipLimits& limits,
                       const std::vector<ParameterPart>& others) {
  std::vector<at::Tensor> inners;
  for (const ClippedLayer& layer : layers) inners.push_back(layer.inner);
  const at::Tensor inner = at::stack(inners).to(at::kDouble);
  if (limits.grafted && limits.kl_clip == 0) return clear_if_not_finite(layers, inner, others);
  const Gradients gradients = gradients_of(layers, limits.momentum);
  const at::Tensor squares = kfac::squares_by_layer(
      kfac::lengths_of(gradients.tensors), gradients.layer_of, layers.size(), inner.device());
  const kfac::LayerScales scaled = kfac::scales_of_layers(inner, squares);

  at::Tensor along;
  if (limits.momentum.carried != 0 && limits.kl_clip != 0) {
    const at::Tensor products = products_with_buffers(gradients, squares);
    along = at::where(squares > 0, products * inner.abs() / squares, at::zeros_like(inner)).sum();
  }
  const at::Tensor clip = clip_scale(scaled.inner, along, limits);
  const at::Tensor scales = (limits.grafted ? at::ones_like(inner) : scaled.scales) * clip;

  const std::vector<at::Tensor> kept = gradients_of(others);
  const at::Tensor bad =
      is_not_finite(kept.empty() ? scaled.inner : scaled.inner + sum_of_largest(kept));
  std::vector<at::Tensor> of_tensors;
  const std::vector<at::Tensor> of_layers = scales.unbind();
  for (const std::size_t layer : gradients.layer_of) of_tensors.push_back(of_layers[layer]);
  kfac::scale_or_clear(gradients.tensors, kept, at::stack(of_tensors), bad);
  const at::Tensor slopes = scales * inner.abs();
  return {bad, scaled.raw, slopes, slopes * clip};
}

}  // namespace spdkfac::runtime
