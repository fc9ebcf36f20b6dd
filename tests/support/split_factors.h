// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "spdkfac/base/factor_shape.h"
#include "support/tensors.h"

// Factors in blocks and diagonals, beside the whole matrices that they stand for.
namespace spdkfac::support {

// All ways that the tests split a factor of `size` rows: whole, its diagonal, blocks of 2 and of 3
// rows, and two blocks.
inline std::vector<FactorShape> splits_of(std::int64_t size, std::int64_t groups) {
  const FactorShape whole{size, groups};
  return {whole, whole.as_diagonal(), whole.in_blocks_of(2), whole.in_blocks_of(3),
          whole.in_blocks_of((size + 1) / 2)};
}

// The whole factor [groups, size, size] with zeros outside the blocks, on the CPU.
inline at::Tensor masked(const at::Tensor& whole, const FactorShape& shape) {
  at::Tensor result = to_host(whole).clone();
  auto values = result.accessor<double, 3>();
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    for (std::int64_t row = 0; row < shape.size; ++row) {
      for (std::int64_t column = 0; column < shape.size; ++column) {
        if (row / shape.dim() != column / shape.dim()) values[group][row][column] = 0;
      }
    }
  }
  return result;
}

// The blocks of a whole factor as [matrices, dim, dim], padded with zeros.
inline at::Tensor blocks_of(const at::Tensor& whole, const FactorShape& shape) {
  const at::Tensor host = to_host(whole);
  const auto from = host.accessor<double, 3>();
  const std::int64_t dim = shape.dim();
  at::Tensor result = at::zeros({shape.matrices(), dim, dim}, at::kDouble);
  auto to = result.accessor<double, 3>();
  for (std::int64_t matrix = 0; matrix < shape.matrices(); ++matrix) {
    const std::int64_t first = matrix % shape.blocks * dim;
    for (std::int64_t row = 0; row < dim && first + row < shape.size; ++row) {
      for (std::int64_t column = 0; column < dim && first + column < shape.size; ++column) {
        to[matrix][row][column] = from[matrix / shape.blocks][first + row][first + column];
      }
    }
  }
  return result;
}

}  // namespace spdkfac::support
