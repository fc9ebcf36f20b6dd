// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/raised_inverse.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/block_inverse.h"
#include "spdkfac/kfac/pivots.h"

namespace spdkfac::kfac {
namespace {

constexpr std::int64_t kCpuLeaf = 64;

// Replaces `size` rows and columns, of which it reads the upper triangle, by W (block_inverse.h):
// elimination whose steps on rows are kept below the diagonal. `diagonal` is what it was before any
// step of any leaf.
template <class Scalar>
void factor_leaf(Scalar* values, std::int64_t stride, std::int64_t size, const Scalar* diagonal,
                 Scalar largest, std::int32_t& state) {
  for (std::int64_t pivot = 0; pivot < size; ++pivot) {
    Scalar* const along = values + pivot * stride;
    const Scalar value = safe_pivot(along[pivot], diagonal[pivot], largest, state);
    for (std::int64_t row = pivot + 1; row < size; ++row) {
      Scalar* const to = values + row * stride;
      const Scalar down = along[row] / value;
      for (std::int64_t column = 0; column < pivot; ++column) to[column] -= down * along[column];
      for (std::int64_t column = row; column < size; ++column) to[column] -= down * along[column];
      to[pivot] = -down;
    }
    const Scalar root = 1 / std::sqrt(value);
    for (std::int64_t column = 0; column < pivot; ++column) along[column] *= root;
    along[pivot] = root;
    std::fill(along + pivot + 1, along + size, Scalar(0));
  }
}

}  // namespace

std::int32_t invert_with_raised_pivots(const at::Tensor& matrix) {
  SPDKFAC_CHECK(matrix.is_cpu() && matrix.dim() == 2 && matrix.is_contiguous(),
                "a matrix to invert is not in one piece on the CPU");
  const std::int64_t size = matrix.size(0);
  const at::Tensor diagonal = matrix.diagonal().clone();
  std::int32_t state = kPivotsFine;
  AT_DISPATCH_FLOATING_TYPES(matrix.scalar_type(), "invert_with_raised_pivots", [&] {
    const auto largest = diagonal.abs().max().item<scalar_t>();
    invert_blocks(matrix.unsqueeze(0), kCpuLeaf,
                  at::empty({block_scratch(size, kCpuLeaf)}, matrix.options()),
                  [&](std::int64_t begin, std::int64_t rows) {
                    factor_leaf(matrix.mutable_data_ptr<scalar_t>() + begin * (size + 1), size,
                                rows, diagonal.const_data_ptr<scalar_t>() + begin,
                                largest > 0 ? largest : scalar_t(1), state);
                  });
  });
  return state;
}

}  // namespace spdkfac::kfac
