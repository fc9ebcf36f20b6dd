// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/modes.h"

namespace spdkfac::kfac {

// What to add to the diagonals of A and of G: one value for each group, on the factors' device.
std::pair<at::Tensor, at::Tensor> damping_of(const at::Tensor& factor_a, const at::Tensor& factor_g,
                                             Damping mode, double gamma);
// The same from the means of their diagonals, tr A/d_A and tr G/d_G, for each group.
std::pair<at::Tensor, at::Tensor> damping_of_means(const at::Tensor& mean_a,
                                                   const at::Tensor& mean_g, Damping mode,
                                                   double gamma);
at::Tensor mean_diagonal(const at::Tensor& factor);
// Those of several factors on one device, one after the other; on a GPU with few kernels.
at::Tensor diagonal_means(const std::vector<at::Tensor>& factors);

// One factor's inverse and how the last refresh went.
struct Inverse {
  // [groups, d, d], symmetric; zeros before the first success. The diagonal of an inverse is
  // positive, so the first element tells whether there is one (is_usable).
  at::Tensor value;
  // Of the last refresh, for each group: whether the factor was not positive definite and was
  // damped more (int32), and whether it was not finite, so that the value is older (bool).
  at::Tensor failures;
  at::Tensor kept;

  Inverse(std::int64_t groups, std::int64_t dim, const at::TensorOptions& options);
};

// Whether all groups of an inverse have been made: a 0-d bool on its device.
at::Tensor is_usable(const at::Tensor& inverse);

// Replaces `inverse` by (factor + damping·I)⁻¹; reads the factor's upper triangle, and changes its
// diagonal meanwhile on the CPU. Damping below the factor's own rounding is raised to that; a
// factor that is still not positive definite is damped more where it is not (pivots.h). Groups
// whose factor is zero or not finite keep their value.
void refresh_inverse(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse);

}  // namespace spdkfac::kfac
