// SPDX-License-Identifier: Apache-2.0
// What kernels over lists of tensors share; for sources of nvcc.
#pragma once

#include <algorithm>
#include <cstdint>

namespace spdkfac::kfac {

// A list as the parameter of a kernel.
template <class Entry, int kCount>
struct Entries {
  Entry entry[kCount];
};

template <int kCount, class Entry>
Entries<Entry, kCount> copied(const Entry* entries, int count) {
  Entries<Entry, kCount> all{};
  std::copy_n(entries, count, all.entry);
  return all;
}

constexpr int kWarp = 32;
constexpr std::int32_t kPieceColumns = 512;  // that a warp takes at once

// Calls take(row, begin, end) for the pieces of rows that are this warp's, of all that the blocks
// along x have.
template <class Take>
__device__ void each_row_piece(std::int32_t rows, std::int32_t columns, const Take& take) {
  const std::int32_t pieces = max(1, (columns + kPieceColumns - 1) / kPieceColumns);
  const std::int64_t warps = std::int64_t{gridDim.x} * (blockDim.x / kWarp);
  for (std::int64_t item = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
       item < std::int64_t{rows} * pieces; item += warps) {
    const auto begin = static_cast<std::int32_t>(item % pieces) * kPieceColumns;
    take(static_cast<std::int32_t>(item / pieces), begin, min(begin + kPieceColumns, columns));
  }
}

// Where a row begins in the matrices of a layer's groups.
template <class Entry>
__device__ std::int64_t row_place(const Entry& entry, std::int32_t row) {
  const std::int32_t group = row / entry.group_rows;
  return group * entry.group_step + std::int64_t{row - group * entry.group_rows} * entry.row_step;
}

// The sum of the values of a block's threads, in its first thread. Before a block calls it again
// its threads must meet.
template <int kThreads>
__device__ double block_sum(double value) {
  __shared__ double partial[kThreads];
  partial[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  return partial[0];
}

}  // namespace spdkfac::kfac
