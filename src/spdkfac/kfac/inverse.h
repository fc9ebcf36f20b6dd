// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/factor_shape.h"
#include "spdkfac/base/solver.h"
#include "spdkfac/kfac/modes.h"

namespace spdkfac::kfac {

// A factor and its shape.
struct ShapedFactor {
  at::Tensor values;
  FactorShape shape;
};

// What to add to the diagonals of A and of G, whole factors [groups, d, d]: one value for each
// group, on the factors' device.
std::pair<at::Tensor, at::Tensor> damping_of(const at::Tensor& factor_a, const at::Tensor& factor_g,
                                             Damping mode, double gamma);
// The same from the means of their diagonals, tr A/d_A and tr G/d_G, for each group.
std::pair<at::Tensor, at::Tensor> damping_of_means(const at::Tensor& mean_a,
                                                   const at::Tensor& mean_g, Damping mode,
                                                   double gamma);
// tr/d of all blocks of each group, [groups].
at::Tensor mean_diagonal(const ShapedFactor& factor);
// Those of several factors on one device, one after the other; on a GPU with few kernels.
at::Tensor diagonal_means(const std::vector<ShapedFactor>& factors);
// One value for each matrix of a factor from one for each group.
at::Tensor for_matrices(const at::Tensor& of_groups, const FactorShape& shape);
// Whether the group of each matrix is zero: without damping there would be nothing to invert.
at::Tensor in_zero_group(const at::Tensor& factor, const FactorShape& shape);

// What a refresh has made of one factor, and how the last one went.
struct Inverse {
  FactorShape shape;
  Solver solver = Solver::kInverse;
  // Of that shape, on a GPU with a margin (aligned.h). The inverse: symmetric; zeros before the
  // first success. Its diagonal is positive, so the first element tells whether there is one
  // (is_usable). Of other solvers the eigenvectors, in columns; unit vectors before the first
  // success.
  at::Tensor value;
  // Of other solvers: those of the eigenvectors, [matrices, dim]; zeros before the first success.
  at::Tensor eigenvalues = {};
  // Where moments live in the eigenvectors: the squared elements of Qᵀ·Q', if these have turned
  // from Q to Q' since the moments followed (turn_moments).
  at::Tensor turned = {};
  // Of the last refresh, for each matrix, or for each group of a diagonal: whether the factor was
  // not positive definite and was damped more (int32), and whether it was not finite, so that the
  // value is older (bool).
  at::Tensor failures;
  at::Tensor kept;

  Inverse(const FactorShape& of, const at::TensorOptions& options, Solver how = Solver::kInverse);
  static std::int64_t flags(const FactorShape& shape) {
    return shape.is_diagonal() ? shape.groups : shape.matrices();
  }
};

// Whether all matrices of an inverse have been made: a 0-d bool on its device.
at::Tensor is_usable(const at::Tensor& inverse);

// Replaces `inverse` by (factor + damping·I)⁻¹, with a damping for each group; reads the factor's
// upper triangles, and changes their diagonals meanwhile on the CPU. Damping below the rounding of
// a block is raised to that; a block that is still not positive definite is damped more where it is
// not (pivots.h). Groups whose factor is zero, and what is not finite, keep their value.
void refresh_inverse(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse);
// Of a factor in blocks some may be zero and others not: those get their damped inverse, which an
// InverseBatch leaves out. `damping` has a value for each group.
void invert_zero_blocks(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse);
// The same for a diagonal on any device: reciprocals, without a look from the host.
void refresh_diagonal(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse);
// Likewise for blocks of two rows.
void refresh_pairs(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse);
// Whether one of these two makes the inverse.
bool by_elements(const FactorShape& shape);

}  // namespace spdkfac::kfac
