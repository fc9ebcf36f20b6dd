// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/small_product.h"

namespace spdkfac::kfac {
namespace {

constexpr int kTile = static_cast<int>(kSmallUnit);  // of the product, rows and columns
constexpr int kSide = 16;                            // threads; each makes 2x2 elements
constexpr int kWarps = kSide * kSide / 32;
constexpr int kInner = 128;                               // that a block reads at once
constexpr int kReads = kTile * kInner / (kSide * kSide);  // of a thread, for each operand
// More tiles than this fill a GPU, where cuBLAS computes faster.
constexpr std::int64_t kMostTiles = 1500;

// Where in a strip of 32 x kInner elements a thread's n-th read lies: neighbours along the strip
// where its memory goes that way, else across it.
struct Place {
  int across;
  int along;
};
__device__ Place place_of(int read, bool memory_along) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(threadIdx.x) / 32 + read * kWarps;
  if (!memory_along) return {lane, line};
  return {line / (kInner / 32), line % (kInner / 32) * 32 + lane};
}

__global__ void __launch_bounds__(kSide* kSide, 3) small_product_kernel(SmallProduct product) {
  __shared__ float left[kTile][kInner + 1];
  __shared__ float right[kTile][kInner + 1];  // transposed
  const std::int64_t first_row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t first_column = std::int64_t{blockIdx.x} * kTile;
  const float* const a = product.left.matrices + blockIdx.z * product.left.matrix_stride +
                         first_row * product.left.row_stride;
  const float* const b = product.right.matrices + blockIdx.z * product.right.matrix_stride +
                         first_column * product.right.column_stride;
  const bool a_along = product.left.column_stride == 1;
  const bool b_along = product.right.row_stride == 1;
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
  float sums[2][2] = {};
  for (std::int64_t begin = 0; begin < product.inner; begin += kInner) {
    float values_a[kReads];  // all on their way before the first is stored
    float values_b[kReads];
#pragma unroll
    for (int read = 0; read < kReads; ++read) {
      const Place at_a = place_of(read, a_along);
      const Place at_b = place_of(read, b_along);
      const std::int64_t inner_a = begin + at_a.along;
      const std::int64_t inner_b = begin + at_b.along;
      values_a[read] =
          inner_a < product.inner
              ? a[at_a.across * product.left.row_stride + inner_a * product.left.column_stride]
              : 0.0F;
      values_b[read] =
          inner_b < product.inner
              ? b[at_b.across * product.right.column_stride + inner_b * product.right.row_stride]
              : 0.0F;
    }
#pragma unroll
    for (int read = 0; read < kReads; ++read) {
      const Place at_a = place_of(read, a_along);
      const Place at_b = place_of(read, b_along);
      left[at_a.across][at_a.along] = values_a[read];
      right[at_b.across][at_b.along] = values_b[read];
    }
    __syncthreads();
#pragma unroll 16
    for (int k = 0; k < kInner; ++k) {
      const float a0 = left[y][k];
      const float a1 = left[y + kSide][k];
      const float b0 = right[x][k];
      const float b1 = right[x + kSide][k];
      sums[0][0] += a0 * b0;
      sums[0][1] += a0 * b1;
      sums[1][0] += a1 * b0;
      sums[1][1] += a1 * b1;
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float* const to = product.out + blockIdx.z * product.out_matrix_stride +
                        (first_row + y + kSide * r) * product.out_row_stride + first_column + x +
                        kSide * c;
      const float value = product.alpha * sums[r][c];
      *to = product.beta == 0 ? value : value + product.beta * *to;
    }
  }
}

}  // namespace

bool takes_small(const SmallProduct& product) {
  const auto fits = [](std::int64_t size) { return size > 0 && size % kSmallUnit == 0; };
  const auto in_lines = [](const SmallOperand& operand) {
    return operand.row_stride == 1 || operand.column_stride == 1;
  };
  const std::int64_t tiles = product.batch * (product.rows / kTile) * (product.columns / kTile);
  return fits(product.rows) && fits(product.columns) && fits(product.inner) &&
         in_lines(product.left) && in_lines(product.right) &&
         tiles * ((product.inner + kInner - 1) / kInner) <= kMostTiles;
}

cudaError_t launch_small_product(const SmallProduct& product, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(product.columns / kTile),
                  static_cast<unsigned>(product.rows / kTile),
                  static_cast<unsigned>(product.batch));
  small_product_kernel<<<grid, kSide * kSide, 0, stream>>>(product);
  return cudaGetLastError();
}

}  // namespace spdkfac::kfac
