// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/runtime/momentum.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// A layer whose gradients are preconditioned, or are to be scaled like those.
struct ClippedLayer {
  std::size_t layer = 0;
  std::vector<ParameterPart> parameters;
  at::Tensor inner;  // kfac::inner_product
};

// The layers that have an inner product, and the parameters of those that have none, added to
// `others`: what is outside these layers.
std::vector<ClippedLayer> clipped_layers(const std::vector<TrackedLayer>& layers,
                                         const std::vector<at::Tensor>& inner);
std::vector<ParameterPart> with_unclipped(const std::vector<TrackedLayer>& layers,
                                          const std::vector<at::Tensor>& inner,
                                          const std::vector<at::Tensor>& others);

struct ClipLimits {
  double kl_clip = 0;
  double learning_rate = 0;
  const Momentum& momentum;
  bool grafted = false;  // every layer has its length already
  at::Tensor rate = {};  // instead of learning_rate: 0-d, double, on the device of the gradients
};

struct Clipped {
  at::Tensor bad;  // whether all gradients were set to zero, 0-d bool
  at::Tensor raw;  // which layers have no inverses and took a scaled gradient, bool [layers]
  // Of each layer, with the gradient V that it has now: ⟨V, ∇W⟩, and Vᵀ(F+γ)V with K-FAC's F.
  at::Tensor slopes;
  at::Tensor curvatures;
};

// Scales the gradients of layers without inverses like their neighbours' (kfac::scales_of_layers)
// and clips all by κ. Where an inner product or a gradient of `others` is not finite, the step must
// not change the parameters: all gradients are set to zero. Nothing waits for a GPU.
Clipped clip_gradients(const std::vector<ClippedLayer>& layers, const ClipLimits& limits,
                       const std::vector<ParameterPart>& others);

}  // namespace spdkfac::runtime
