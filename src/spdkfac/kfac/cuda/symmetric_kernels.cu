// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/kernel_parts.h"
#include "spdkfac/kfac/cuda/symmetric_kernels.h"
#include "spdkfac/kfac/cuda/triangle_lines.h"
#include "spdkfac/kfac/cuda/triangle_tiles.h"

namespace spdkfac::kfac {
namespace {

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

template <class Scalar>
__global__ void unpack_kernel(const Scalar* __restrict__ packed, SquareBatch shape,
                              Scalar* __restrict__ matrix) {
  const std::int64_t dim = shape.dim;
  packed += blockIdx.z * (dim * (dim + 1) / 2);
  matrix += blockIdx.z * shape.group_stride;
  mirror_tile<Scalar>(
      dim,
      [&](std::int64_t row, std::int64_t column) {
        return packed[packed_row(row, dim) + column - row];
      },
      [&](std::int64_t row, std::int64_t column, Scalar value) {
        matrix[row * shape.row_stride + column] = value;
      });
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
  unpack_kernel<<<triangle_tiles(shape.dim, shape.groups), tile_threads(), 0, stream>>>(
      packed, shape, matrix);
  return cudaGetLastError();
}

template cudaError_t launch_pack_upper(const PackEntry<float>*, int, cudaStream_t);
template cudaError_t launch_pack_upper(const PackEntry<double>*, int, cudaStream_t);
template cudaError_t launch_unpack_upper(const float*, SquareBatch, float*, cudaStream_t);
template cudaError_t launch_unpack_upper(const double*, SquareBatch, double*, cudaStream_t);

}  // namespace spdkfac::kfac
