// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/split_kernels.h"

namespace spdkfac {
namespace {

constexpr int kThreads = 256;

// One row for each y (and more where there are more rows than the grid takes), a matrix for each z.
__global__ void split_kernel(const float* matrices, SplitBatch batch, bool beside, bool left,
                             float* out) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= batch.columns) return;
  matrices += blockIdx.z * batch.matrix_stride;
  out += blockIdx.z * 3 * batch.rows * batch.columns;
  const std::int64_t step = beside ? batch.columns : batch.rows * batch.columns;
  const std::int64_t out_stride = beside ? 3 * batch.columns : batch.columns;
  for (std::int64_t row = blockIdx.y; row < batch.rows; row += gridDim.y) {
    const float value = matrices[row * batch.row_stride + column];
    // Rounded to the nearest; what is not finite stays so.
    const float hi = __uint_as_float((__float_as_uint(value) + 0x1000U) & 0xffffe000U);
    const float lo = value - hi;
    float* const to = out + row * out_stride + column;
    to[0] = hi;
    to[step] = left ? hi : lo;
    to[2 * step] = left ? lo : hi;
  }
}

}  // namespace

cudaError_t launch_split(const float* matrices, const SplitBatch& batch, SplitPlaces places,
                         SplitOrder order, float* out, cudaStream_t stream) {
  constexpr std::int64_t kMaxRows = 65535;
  const dim3 grid(static_cast<unsigned>((batch.columns + kThreads - 1) / kThreads),
                  static_cast<unsigned>(batch.rows < kMaxRows ? batch.rows : kMaxRows),
                  static_cast<unsigned>(batch.size));
  split_kernel<<<grid, kThreads, 0, stream>>>(matrices, batch, places == SplitPlaces::kSideBySide,
                                              order == SplitOrder::kLeft, out);
  return cudaGetLastError();
}

}  // namespace spdkfac
