// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/kernel_parts.h"
#include "spdkfac/kfac/cuda/symmetric_kernels.h"
#include "spdkfac/kfac/cuda/triangle_lines.h"

namespace spdkfac {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // of threads; each serves kTile / kTileRows rows of a tile

// One warp per piece of a line.
template <class Scalar>
__global__ void pack_kernel(Entries<PackEntry<Scalar>, kPackEntries> entries,
                            LineBlocks<kPackEntries> blocks) {
  const int index = blocks.entry();
  const PackEntry<Scalar>& entry = entries.entry[index];
  const LinePiece piece(blocks.piece(index), entry.dim);
  if (piece.group >= entry.groups) return;
  const std::int64_t dim = entry.dim;
  const Scalar* const matrix = entry.matrix + piece.group * entry.group_stride;
  Scalar* const packed = entry.packed + piece.group * (dim * (dim + 1) / 2);
  const std::int64_t stride = entry.row_stride;
  const LinePlaces from = piece.places([stride](int row) { return matrix_row(row, stride); });
  const LinePlaces to = piece.places([dim](int row) { return packed_row(row, dim); });
  Scalar values[kEach];
  piece.each([&](int which, int at) { values[which] = matrix[from[at]]; });
  // Not multiplied by 1, every bit stays, also of a NaN.
  const Scalar scale = entry.scale;
  piece.each([&](int which, int at) {
    packed[to[at]] = scale == Scalar(1) ? values[which] : scale * values[which];
  });
}

// One block per tile of the upper triangle, z per group; tiles below the diagonal leave at once.
// The tile goes through shared memory so that the lower triangle is written in rows too.
template <class Scalar>
__global__ void unpack_kernel(const Scalar* __restrict__ packed, SquareBatch shape,
                              Scalar* __restrict__ matrix) {
  if (blockIdx.x < blockIdx.y) return;
  __shared__ Scalar tile[kTile][kTile + 1];
  matrix += blockIdx.z * shape.group_stride;
  packed += blockIdx.z * (shape.dim * (shape.dim + 1) / 2);
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  Scalar values[kTile / kTileRows];
  // All loaded before one is stored.
  const auto each = [&](const auto& visit) {
#pragma unroll
    for (int step = 0; step < kTile; step += kTileRows) {
      const std::int64_t row = std::int64_t{blockIdx.y} * kTile + threadIdx.y + step;
      if (row < shape.dim && column < shape.dim && row <= column) visit(step, row);
    }
  };
  each([&](int step, std::int64_t row) {
    values[step / kTileRows] = packed[packed_row(row, shape.dim) + column - row];
  });
  each([&](int step, std::int64_t row) {
    matrix[row * shape.row_stride + column] = values[step / kTileRows];
    tile[threadIdx.y + step][threadIdx.x] = values[step / kTileRows];
  });
  __syncthreads();
  const std::int64_t mirrored_column = std::int64_t{blockIdx.y} * kTile + threadIdx.x;
  for (int step = 0; step < kTile; step += kTileRows) {
    const std::int64_t mirrored_row = std::int64_t{blockIdx.x} * kTile + threadIdx.y + step;
    if (mirrored_row < shape.dim && mirrored_column < mirrored_row) {
      matrix[mirrored_row * shape.row_stride + mirrored_column] =
          tile[threadIdx.x][threadIdx.y + step];
    }
  }
}

dim3 tiles(const SquareBatch& shape) {
  const auto side = static_cast<unsigned>((shape.dim + kTile - 1) / kTile);
  return dim3(side, side, static_cast<unsigned>(shape.groups));
}

}  // namespace

template <class Scalar>
cudaError_t launch_pack_upper(const PackEntry<Scalar>* entries, int count, cudaStream_t stream) {
  const LineBlocks<kPackEntries> blocks = line_blocks<kPackEntries>(entries, count);
  pack_kernel<<<blocks.first[count], dim3(kWarp, kWarps), 0, stream>>>(
      copied<kPackEntries>(entries, count), blocks);
  return cudaGetLastError();
}

template <class Scalar>
cudaError_t launch_unpack_upper(const Scalar* packed, SquareBatch shape, Scalar* matrix,
                                cudaStream_t stream) {
  unpack_kernel<<<tiles(shape), dim3(kTile, kTileRows), 0, stream>>>(packed, shape, matrix);
  return cudaGetLastError();
}

template cudaError_t launch_pack_upper(const PackEntry<float>*, int, cudaStream_t);
template cudaError_t launch_pack_upper(const PackEntry<double>*, int, cudaStream_t);
template cudaError_t launch_unpack_upper(const float*, SquareBatch, float*, cudaStream_t);
template cudaError_t launch_unpack_upper(const double*, SquareBatch, double*, cudaStream_t);

}  // namespace spdkfac
