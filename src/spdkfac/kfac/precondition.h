// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// How a weight is stored: [out, in/groups, kernel…], as of Linear layers and convolutions; [in,
// out/groups, kernel…], as of transposed convolutions; or an element for each unit, as of norms: as
// a matrix, weight and bias of a unit are rows of one column, one unit after the other.
enum class WeightLayout { kOutIn, kInOut, kUnits };

// A weight that is a matrix as a view [groups, out, in, kernel…], with `out` and `in` those of one
// group.
at::Tensor by_outputs(const at::Tensor& weight, WeightLayout layout, std::int64_t groups);

// Copies a layer's gradients into one matrix [groups, out, in·kernel | bias] and back. Weight or
// bias may be undefined: a bias without a gradient, a weight that is not trained.
void join_gradient(const at::Tensor& weight, const at::Tensor& bias, at::Tensor joined,
                   WeightLayout layout = WeightLayout::kOutIn);
void split_gradient(const at::Tensor& joined, at::Tensor weight, at::Tensor bias,
                    WeightLayout layout = WeightLayout::kOutIn);

// out = G⁻¹·gradient·A⁻¹ for each group of the gradient [groups, out, in]; `scratch` has its shape.
// An inverse in blocks is multiplied block by block, a diagonal element by element.
void precondition(const at::Tensor& gradient, const at::Tensor& inverse_a,
                  const at::Tensor& inverse_g, at::Tensor scratch, at::Tensor out);

// What a layer's gradient and preconditioned gradient make for clipping, 0-d in double precision:
// ⟨V, ∇W⟩, not below 0, where both inverses are there (is_usable). Otherwise `out` becomes the
// gradient and the result −⟨∇W, ∇W⟩, so that the sign tells (scales_of_layers).
at::Tensor inner_product(const at::Tensor& gradient, const at::Tensor& inverse_a,
                         const at::Tensor& inverse_g, at::Tensor out);

// What layers' gradients are multiplied with, [layers], from their inner products (inner_product)
// and the squares of their lengths ‖V‖²; all in double precision and on one device.
struct LayerScales {
  at::Tensor scales;
  at::Tensor inner;  // Σ⟨V, ∇W⟩ over all layers as they are then, 0-d
  at::Tensor raw;    // which layers took a scaled gradient, bool [layers]
};
// For V = P·∇W, ‖V‖²/⟨V, ∇W⟩ is a mean of P's eigenvalues, weighted by what the gradient has of
// them; for V = s·∇W it is s. So a layer without inverses takes s·∇W, where s is the geometric mean
// of this quotient over the layers that have them: P as its neighbours have it. 1 if none has.
LayerScales scales_of_layers(const at::Tensor& inner, const at::Tensor& squares);

// min(1, √(κ / (lr²·|inner|))), where inner = Σ⟨V, ∇W⟩ over all layers, as a 0-d tensor on its
// device; 1 for κ = 0 or lr = 0.
at::Tensor kl_clip_scale(const at::Tensor& inner, double kappa, double learning_rate);

// Multiplies `scaled` by `scales` (double, one for each), or, where `bad` (0-d bool) is set, sets
// these and `others` to zero; on a GPU with few kernels and without a look from the host.
void scale_or_clear(const std::vector<at::Tensor>& scaled, const std::vector<at::Tensor>& others,
                    const at::Tensor& scales, const at::Tensor& bad);

}  // namespace spdkfac::kfac
