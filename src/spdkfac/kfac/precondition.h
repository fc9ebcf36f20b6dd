// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// Copies a layer's gradients into one matrix [groups, out, in·kh·kw | bias] and back. A weight is
// [out, in] or [out, in/groups, kh, kw]; `bias` may be undefined.
void join_gradient(const at::Tensor& weight, const at::Tensor& bias, at::Tensor joined);
void split_gradient(const at::Tensor& joined, at::Tensor weight, at::Tensor bias);

// out = G⁻¹·gradient·A⁻¹ for each group; `scratch` has the gradient's shape.
void precondition(const at::Tensor& gradient, const at::Tensor& inverse_a,
                  const at::Tensor& inverse_g, at::Tensor scratch, at::Tensor out);

// min(1, √(κ / (lr²·|inner|))), where inner = Σ⟨V, ∇W⟩ over all layers, as a 0-d tensor on its
// device; 1 for κ = 0 or lr = 0.
at::Tensor kl_clip_scale(const at::Tensor& inner, double kappa, double learning_rate);

// Multiplies `scaled` by `scale` (0-d), or, where `bad` (0-d bool) is set, sets these and `others`
// to zero; on a GPU with few kernels and without a look from the host.
void scale_or_clear(const std::vector<at::Tensor>& scaled, const std::vector<at::Tensor>& others,
                    const at::Tensor& scale, const at::Tensor& bad);

}  // namespace spdkfac::kfac
