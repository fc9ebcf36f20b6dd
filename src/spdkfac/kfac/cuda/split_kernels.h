// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

namespace spdkfac::kfac {

// A batch of float matrices; strides in elements.
struct SplitBatch {
  const float* matrices = nullptr;
  std::int64_t size = 1;  // at most 65535
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t matrix_stride = 0;
  std::int64_t row_stride = 0;
};

// Raises *largest to the largest magnitude of the batch; infinity or NaN where there is one.
cudaError_t launch_largest(const SplitBatch& batch, float* largest, cudaStream_t stream);

// Splits x·2ⁿ = hi + lo into halves, with n such that the largest magnitude comes to 2¹⁴ or a
// little above, and writes each matrix [rows, columns] three times, side by side ([rows,
// 3·columns]) or below each other ([3·rows, columns]): as hi, hi, lo, or as hi, lo, hi. One kernel.
enum class SplitPlaces { kSideBySide, kBelow };
enum class SplitOrder { kLeft, kRight };  // hi, hi, lo; hi, lo, hi
cudaError_t launch_split(const SplitBatch& batch, SplitPlaces places, SplitOrder order,
                         const float* largest, __half* out, cudaStream_t stream);

// What a product of two such operands is multiplied with: factors[0] = alpha/2ⁿ⁺ᵐ, factors[1] =
// beta.
cudaError_t launch_factors(const float* largest_left, const float* largest_right, float alpha,
                           float beta, float* factors, cudaStream_t stream);

}  // namespace spdkfac::kfac
