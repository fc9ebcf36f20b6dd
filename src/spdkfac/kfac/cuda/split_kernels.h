// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

namespace spdkfac::kfac {

// Elements that a thread reads and writes at once: columns, and strides, are multiples of it.
constexpr std::int64_t kSplitUnit = 8;

// How a batch of float matrices is split: each element x·scale = hi + lo into halves, finite ones
// at most as large as a half can be, and each matrix [rows, columns] three times, side by side
// ([rows, 3·columns]) or below each other ([3·rows, columns]), as hi, hi, lo or as hi, lo, hi.
// Strides are in elements; `matrices` and `out` are at multiples of 16 bytes.
enum class SplitPlaces { kSideBySide, kBelow };
enum class SplitOrder { kLeft, kRight };  // hi, hi, lo; hi, lo, hi
struct SplitOperand {
  const float* matrices = nullptr;
  std::int64_t size = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t matrix_stride = 0;
  std::int64_t row_stride = 0;
  float scale = 1;
  SplitPlaces places = SplitPlaces::kSideBySide;
  SplitOrder order = SplitOrder::kLeft;
  __half* out = nullptr;
};

// Splits both operands of a product in one kernel; together they have at most 65535 matrices.
cudaError_t launch_split(const SplitOperand& left, const SplitOperand& right, cudaStream_t stream);

}  // namespace spdkfac::kfac
