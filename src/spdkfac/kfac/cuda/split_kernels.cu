// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "spdkfac/kfac/cuda/split_kernels.h"

namespace spdkfac::kfac {
namespace {

constexpr int kThreads = 256;
constexpr float kLargestHalf = 65504;

// The values as halves, which are written at once; what these leave of them stays in `values`.
__device__ uint4 halves_of(float (&values)[kSplitUnit]) {
  unsigned pairs[kSplitUnit / 2] = {};
#pragma unroll
  for (int i = 0; i < kSplitUnit; ++i) {
    const float cut = fminf(fmaxf(values[i], -kLargestHalf), kLargestHalf);
    if (isfinite(values[i])) values[i] = cut;  // whoever pivots must see infinity and NaN
    const __half half = __float2half_rn(values[i]);
    values[i] -= __half2float(half);
    pairs[i / 2] |= static_cast<unsigned>(__half_as_ushort(half)) << (i % 2 * 16);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__global__ void split_kernel(const __grid_constant__ SplitOperand left,
                             const __grid_constant__ SplitOperand right) {
  const bool of_left = blockIdx.y < left.size;
  const SplitOperand& operand = of_left ? left : right;
  const std::int64_t matrix = of_left ? blockIdx.y : blockIdx.y - left.size;
  const auto units = static_cast<unsigned>(operand.columns / kSplitUnit);  // of a row
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const std::int64_t row = index / units;
  if (row >= operand.rows) return;
  const std::int64_t column = std::int64_t{index % units} * kSplitUnit;
  const auto* from = reinterpret_cast<const float4*>(
      operand.matrices + matrix * operand.matrix_stride + row * operand.row_stride + column);
  const float4 first = from[0];
  const float4 second = from[1];
  const float scale = operand.scale;
  float values[kSplitUnit] = {first.x * scale,  first.y * scale,  first.z * scale,
                              first.w * scale,  second.x * scale, second.y * scale,
                              second.z * scale, second.w * scale};
  const uint4 hi = halves_of(values);
  const uint4 lo = halves_of(values);
  const bool beside = operand.places == SplitPlaces::kSideBySide;
  const bool hi_twice_first = operand.order == SplitOrder::kLeft;
  const std::int64_t step = beside ? operand.columns : operand.rows * operand.columns;
  const std::int64_t out_stride = beside ? 3 * operand.columns : operand.columns;
  auto* const to = reinterpret_cast<uint4*>(
      operand.out + matrix * 3 * operand.rows * operand.columns + row * out_stride + column);
  to[0] = hi;
  to[step / kSplitUnit] = hi_twice_first ? hi : lo;
  to[2 * step / kSplitUnit] = hi_twice_first ? lo : hi;
}

}  // namespace

cudaError_t launch_split(const SplitOperand& left, const SplitOperand& right, cudaStream_t stream) {
  const auto blocks_of = [](const SplitOperand& operand) {
    const std::int64_t threads = operand.rows * (operand.columns / kSplitUnit);
    return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  };
  const unsigned blocks = std::max(blocks_of(left), blocks_of(right));
  split_kernel<<<dim3(blocks, static_cast<unsigned>(left.size + right.size)), kThreads, 0,
                 stream>>>(left, right);
  return cudaGetLastError();
}

}  // namespace spdkfac::kfac
