// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/modes.h"

namespace spdkfac {

// Of Adam, whose length grafted updates may take.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

namespace kfac {

// Adam's moments of the gradients of one layer: in the order of the matrix that is preconditioned,
// where a bias with an element for each row of the weight is the last column; otherwise all tensors
// one after the other.
struct AdamMoments {
  at::Tensor first;   // [elements]
  at::Tensor second;  // [elements]
  at::Tensor steps;   // 0-d, double: how many gradients they hold

  AdamMoments(std::int64_t elements, const at::TensorOptions& options);
};

// The method that gives the lengths; `adam` only for kAdam.
struct GraftRule {
  Graft method = Graft::kNone;
  AdamOptions adam = {};
};

// The gradients of a layer's parameters, or the one matrix of them; `moments` only for Adam.
struct GraftedLayer {
  std::vector<at::Tensor> gradients;
  AdamMoments* moments = nullptr;
};

// The lengths of the layers' gradients: [layers] in double precision, on their device.
at::Tensor gradient_lengths(const std::vector<GraftedLayer>& layers);

// Takes the gradients into Adam's moments and replaces them by the first moments. Returns the
// lengths of Adam's steps, √(1−β₂ᵗ)/(1−β₁ᵗ)·‖m/(√v+ε)‖. If a gradient is not finite, all layers
// take zeros for theirs, and what replaces them is NaN. Nothing waits for a GPU.
at::Tensor adam_lengths(const std::vector<GraftedLayer>& layers, const AdamOptions& options);

// One more step of each layer: √(1−β₂ᵗ)/(1−β₁ᵗ), [layers].
at::Tensor next_corrections(std::vector<at::Tensor> steps, const AdamOptions& options);

// Those of the rule's method, which is not kNone.
at::Tensor graft_lengths(const std::vector<GraftedLayer>& layers, const GraftRule& rule);

// Gives the gradients of each layer this length; those of length 0 stay.
void set_lengths(const std::vector<GraftedLayer>& layers, const at::Tensor& lengths);

}  // namespace kfac
}  // namespace spdkfac
