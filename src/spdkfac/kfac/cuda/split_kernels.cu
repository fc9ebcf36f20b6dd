// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/split_kernels.h"

namespace spdkfac::kfac {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxRows = 65535;  // of a grid
constexpr unsigned kRowsOfLargest = 64;   // of a grid that share the rows of a matrix
constexpr int kTop = 14;                  // the exponent that the largest value gets

// 2ⁿ; 1 where the largest is 0, tiny or not finite.
__device__ float scale_of(float largest) {
  const int exponent = static_cast<int>((__float_as_uint(largest) >> 23) & 0xffU) - 127;
  if (exponent > 126 || exponent < -100) return 1.0F;
  return __uint_as_float(static_cast<unsigned>(127 + kTop - exponent) << 23);
}

// Of numbers that are not negative, and of NaN as the largest, the bits have the order of integers.
__global__ void largest_kernel(SplitBatch batch, float* largest) {
  const float* matrix = batch.matrices + blockIdx.z * batch.matrix_stride;
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  unsigned own = 0;
  if (column < batch.columns) {
    for (std::int64_t row = blockIdx.y; row < batch.rows; row += gridDim.y) {
      own = max(own, __float_as_uint(fabsf(matrix[row * batch.row_stride + column])));
    }
  }
  own = __reduce_max_sync(0xffffffffU, own);
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned*>(largest), own);
}

// One row for each y (and more where there are more rows than the grid takes), a matrix for each z.
__global__ void split_kernel(SplitBatch batch, bool beside, bool left, const float* largest,
                             __half* out) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= batch.columns) return;
  const float scale = scale_of(*largest);
  const float* matrix = batch.matrices + blockIdx.z * batch.matrix_stride;
  out += blockIdx.z * 3 * batch.rows * batch.columns;
  const std::int64_t step = beside ? batch.columns : batch.rows * batch.columns;
  const std::int64_t out_stride = beside ? 3 * batch.columns : batch.columns;
  for (std::int64_t row = blockIdx.y; row < batch.rows; row += gridDim.y) {
    const float value = matrix[row * batch.row_stride + column] * scale;
    const __half hi = __float2half_rn(value);
    const __half lo = __float2half_rn(value - __half2float(hi));
    __half* const to = out + row * out_stride + column;
    to[0] = hi;
    to[step] = left ? hi : lo;
    to[2 * step] = left ? lo : hi;
  }
}

__global__ void factors_kernel(const float* left, const float* right, float alpha, float beta,
                               float* factors) {
  factors[0] = alpha / scale_of(*left) / scale_of(*right);
  factors[1] = beta;
}

dim3 grid_of(const SplitBatch& batch, std::int64_t max_rows) {
  return dim3(static_cast<unsigned>((batch.columns + kThreads - 1) / kThreads),
              static_cast<unsigned>(batch.rows < max_rows ? batch.rows : max_rows),
              static_cast<unsigned>(batch.size));
}

}  // namespace

cudaError_t launch_largest(const SplitBatch& batch, float* largest, cudaStream_t stream) {
  largest_kernel<<<grid_of(batch, kRowsOfLargest), kThreads, 0, stream>>>(batch, largest);
  return cudaGetLastError();
}

cudaError_t launch_split(const SplitBatch& batch, SplitPlaces places, SplitOrder order,
                         const float* largest, __half* out, cudaStream_t stream) {
  split_kernel<<<grid_of(batch, kMaxRows), kThreads, 0, stream>>>(
      batch, places == SplitPlaces::kSideBySide, order == SplitOrder::kLeft, largest, out);
  return cudaGetLastError();
}

cudaError_t launch_factors(const float* largest_left, const float* largest_right, float alpha,
                           float beta, float* factors, cudaStream_t stream) {
  factors_kernel<<<1, 1, 0, stream>>>(largest_left, largest_right, alpha, beta, factors);
  return cudaGetLastError();
}

}  // namespace spdkfac::kfac
