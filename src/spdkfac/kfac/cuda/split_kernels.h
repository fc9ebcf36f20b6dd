// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace spdkfac {

// Splits floats x = hi + lo, hi with the 10 bits of mantissa that tf32 has, and writes each of a
// batch of matrices [rows, columns] three times, side by side ([rows, 3·columns]) or below each
// other
// ([3·rows, columns]): as hi, hi, lo, or as hi, lo, hi. One kernel on `stream`; strides in
// elements.
struct SplitBatch {
  std::int64_t size = 1;  // at most 65535
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t matrix_stride = 0;
  std::int64_t row_stride = 0;
};
enum class SplitPlaces { kSideBySide, kBelow };
enum class SplitOrder { kLeft, kRight };  // hi, hi, lo; hi, lo, hi
cudaError_t launch_split(const float* matrices, const SplitBatch& batch, SplitPlaces places,
                         SplitOrder order, float* out, cudaStream_t stream);

}  // namespace spdkfac
