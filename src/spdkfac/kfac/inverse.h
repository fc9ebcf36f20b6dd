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

// A failed factorisation is tried again with 10 times the damping, this often.
constexpr int kInverseRetries = 3;
constexpr double kInverseBoost = 10;
constexpr double kMaxInverseBoost = 1000;  // after all retries

// One factor's inverse and how the last inversion went. On the CPU retries follow at once; on CUDA,
// where nothing waits for the host, at the next refresh.
struct Inverse {
  // [groups, d, d], symmetric; the identity before the first success.
  at::Tensor value;
  // Attempts that failed in the last refresh, int32 [groups]; with `kept`, the value is older.
  at::Tensor failures;
  at::Tensor kept;   // bool [groups]
  at::Tensor boost;  // CUDA: what the next refresh multiplies the damping with

  Inverse(std::int64_t groups, std::int64_t dim, const at::TensorOptions& options);
};

// Replaces `inverse` by (factor + damping·I)⁻¹ by Cholesky; reads the factor's upper triangle. The
// factor's diagonal is changed meanwhile and put back.
// Groups whose factor cannot be inverted even with more damping keep their value.
void refresh_inverse(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse);

}  // namespace spdkfac::kfac
