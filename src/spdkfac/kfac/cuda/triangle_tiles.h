// SPDX-License-Identifier: Apache-2.0
// Symmetric matrices written from their upper triangles, tile by tile; for sources of nvcc.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace spdkfac::kfac {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // of threads; each serves kTile / kTileRows rows of a tile

// A grid with one block per tile, z per matrix, and the threads of a block.
inline dim3 triangle_tiles(std::int64_t dim, std::int64_t matrices) {
  const auto side = static_cast<unsigned>((dim + kTile - 1) / kTile);
  return dim3(side, side, static_cast<unsigned>(matrices));
}
inline dim3 tile_threads() { return dim3(kTile, kTileRows); }

// For the elements of this block's tile on or above the diagonal: value = load(row, column), then
// store(row, column, value) and, beside the diagonal, store(column, row, value). Both triangles are
// written in rows, for which the tile goes through shared memory, and a thread loads all its
// elements before it stores one. Blocks below the diagonal have nothing to do.
template <class Scalar, class Load, class Store>
__device__ void mirror_tile(std::int64_t dim, const Load& load, const Store& store) {
  if (blockIdx.x < blockIdx.y) return;
  __shared__ Scalar tile[kTile][kTile + 1];
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  const auto each = [&](const auto& visit) {
#pragma unroll
    for (int step = 0; step < kTile; step += kTileRows) {
      const std::int64_t row = std::int64_t{blockIdx.y} * kTile + threadIdx.y + step;
      if (row <= column && column < dim) visit(step, row);
    }
  };
  Scalar values[kTile / kTileRows];
  each([&](int step, std::int64_t row) { values[step / kTileRows] = load(row, column); });
  each([&](int step, std::int64_t row) {
    const Scalar value = values[step / kTileRows];
    store(row, column, value);
    tile[threadIdx.y + step][threadIdx.x] = value;
  });
  __syncthreads();
  const std::int64_t below = std::int64_t{blockIdx.y} * kTile + threadIdx.x;
  for (int step = 0; step < kTile; step += kTileRows) {
    const std::int64_t row = std::int64_t{blockIdx.x} * kTile + threadIdx.y + step;
    if (below < row && row < dim) store(row, below, tile[threadIdx.x][threadIdx.y + step]);
  }
}

}  // namespace spdkfac::kfac
