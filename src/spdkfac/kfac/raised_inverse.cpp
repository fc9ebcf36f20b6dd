// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/raised_inverse.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/block_inverse.h"
#include "spdkfac/kfac/pivots.h"

namespace spdkfac::kfac {
namespace {

constexpr std::int64_t kCpuLeaf = 64;

// Gauss-Jordan steps on `size` rows and columns; `diagonal` is what they were before any step.
template <class Scalar>
void invert_leaf(Scalar* values, std::int64_t stride, std::int64_t size, const Scalar* diagonal,
                 Scalar largest, std::int32_t& state) {
  for (std::int64_t pivot = 0; pivot < size; ++pivot) {
    Scalar* const along = values + pivot * stride;
    const Scalar reciprocal = 1 / safe_pivot(along[pivot], diagonal[pivot], largest, state);
    for (std::int64_t row = 0; row < size; ++row) {
      if (row == pivot) continue;
      Scalar* const to = values + row * stride;
      const Scalar down = to[pivot] * reciprocal;
      for (std::int64_t column = 0; column < size; ++column) to[column] -= down * along[column];
      to[pivot] = -down;
    }
    for (std::int64_t column = 0; column < size; ++column) along[column] *= reciprocal;
    along[pivot] = reciprocal;
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
                    invert_leaf(matrix.mutable_data_ptr<scalar_t>() + begin * (size + 1), size,
                                rows, diagonal.const_data_ptr<scalar_t>() + begin,
                                largest > 0 ? largest : scalar_t(1), state);
                  });
  });
  return state;
}

}  // namespace spdkfac::kfac
