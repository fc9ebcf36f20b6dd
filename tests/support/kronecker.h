// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "support/tensors.h"

// Kronecker products written out. A layer's gradient W is [d_g, d_a]; vec(W) stacks its columns, so
// element (o, i) is at i·d_g + o. With that vec(G·W·A) = (Aᵀ⊗G)·vec(W), and A is symmetric: what
// K-FAC computes as G⁻¹·W·A⁻¹ is (A⊗G)⁻¹·vec(W).
namespace spdkfac::support {

// vec of [d_g, d_a], in double precision on the CPU.
inline at::Tensor stacked_columns(const at::Tensor& matrix) {
  const at::Tensor values = to_host(matrix);
  const auto from = values.accessor<double, 2>();
  at::Tensor stacked = at::zeros({values.numel()}, at::kDouble);
  auto to = stacked.accessor<double, 1>();
  for (std::int64_t o = 0; o < values.size(0); ++o) {
    for (std::int64_t i = 0; i < values.size(1); ++i) to[i * values.size(0) + o] = from[o][i];
  }
  return stacked;
}

// The reverse: [d_g, d_a] from its stacked columns.
inline at::Tensor unstacked_columns(const at::Tensor& stacked, std::int64_t d_g) {
  const at::Tensor values = to_host(stacked);
  const auto from = values.accessor<double, 1>();
  at::Tensor matrix = at::zeros({d_g, values.numel() / d_g}, at::kDouble);
  auto to = matrix.accessor<double, 2>();
  for (std::int64_t k = 0; k < values.numel(); ++k) to[k % d_g][k / d_g] = from[k];
  return matrix;
}

// A⊗G: element (i·d_g + o, j·d_g + p) is A(i,j)·G(o,p).
inline at::Tensor kronecker(const at::Tensor& a, const at::Tensor& g) {
  const at::Tensor left = to_host(a);
  const at::Tensor right = to_host(g);
  const auto va = left.accessor<double, 2>();
  const auto vg = right.accessor<double, 2>();
  const std::int64_t d_a = left.size(0);
  const std::int64_t d_g = right.size(0);
  at::Tensor product = at::zeros({d_a * d_g, d_a * d_g}, at::kDouble);
  auto out = product.accessor<double, 2>();
  for (std::int64_t i = 0; i < d_a; ++i) {
    for (std::int64_t j = 0; j < d_a; ++j) {
      for (std::int64_t o = 0; o < d_g; ++o) {
        for (std::int64_t p = 0; p < d_g; ++p) {
          out[i * d_g + o][j * d_g + p] = va[i][j] * vg[o][p];
        }
      }
    }
  }
  return product;
}

}  // namespace spdkfac::support
