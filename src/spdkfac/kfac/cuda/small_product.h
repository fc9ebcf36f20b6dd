// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace spdkfac::kfac {

// A batch of float matrices by their strides, in elements. Of row and column stride one is 1.
struct SmallOperand {
  const float* matrices = nullptr;
  std::int64_t matrix_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

// out = beta·out + alpha·left·right for few small matrices, whose dimensions are multiples of
// kSmallUnit: where cuBLAS would spend most of its time on waiting.
constexpr std::int64_t kSmallUnit = 32;
struct SmallProduct {
  SmallOperand left;
  SmallOperand right;
  float* out = nullptr;  // in rows
  std::int64_t out_matrix_stride = 0;
  std::int64_t out_row_stride = 0;
  std::int64_t batch = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  float beta = 0;
  float alpha = 1;
};
bool takes_small(const SmallProduct& product);
cudaError_t launch_small_product(const SmallProduct& product, cudaStream_t stream);

}  // namespace spdkfac::kfac
