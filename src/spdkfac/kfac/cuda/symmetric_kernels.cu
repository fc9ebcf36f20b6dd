// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/symmetric_kernels.h"

namespace spdkfac {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // of threads; each serves kTile / kTileRows rows of a tile

// Elements before `row` in the packed upper triangle.
__device__ std::int64_t packed_start(std::int64_t row, std::int64_t dim) {
  return row * dim - row * (row - 1) / 2;
}

// One block per tile of the upper triangle, z per group; tiles below the diagonal leave at once.
template <class Scalar>
__global__ void pack_kernel(const Scalar* matrix, SquareBatch shape, Scalar scale, Scalar* packed) {
  if (blockIdx.x < blockIdx.y) return;
  matrix += blockIdx.z * shape.group_stride;
  packed += blockIdx.z * (shape.dim * (shape.dim + 1) / 2);
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  for (int step = 0; step < kTile; step += kTileRows) {
    const std::int64_t row = std::int64_t{blockIdx.y} * kTile + threadIdx.y + step;
    if (row < shape.dim && column < shape.dim && row <= column) {
      const Scalar value = matrix[row * shape.row_stride + column];
      // Not multiplied by 1, every bit stays, also of a NaN.
      packed[packed_start(row, shape.dim) + column - row] =
          scale == Scalar(1) ? value : scale * value;
    }
  }
}

// As above; the tile goes through shared memory so that the lower triangle is written in rows too.
template <class Scalar>
__global__ void unpack_kernel(const Scalar* packed, SquareBatch shape, Scalar* matrix) {
  if (blockIdx.x < blockIdx.y) return;
  __shared__ Scalar tile[kTile][kTile + 1];
  matrix += blockIdx.z * shape.group_stride;
  packed += blockIdx.z * (shape.dim * (shape.dim + 1) / 2);
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  for (int step = 0; step < kTile; step += kTileRows) {
    const std::int64_t row = std::int64_t{blockIdx.y} * kTile + threadIdx.y + step;
    if (row < shape.dim && column < shape.dim && row <= column) {
      const Scalar value = packed[packed_start(row, shape.dim) + column - row];
      matrix[row * shape.row_stride + column] = value;
      tile[threadIdx.y + step][threadIdx.x] = value;
    }
  }
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
cudaError_t launch_pack_upper(const Scalar* matrix, SquareBatch shape, Scalar scale, Scalar* packed,
                              cudaStream_t stream) {
  pack_kernel<<<tiles(shape), dim3(kTile, kTileRows), 0, stream>>>(matrix, shape, scale, packed);
  return cudaGetLastError();
}

template <class Scalar>
cudaError_t launch_unpack_upper(const Scalar* packed, SquareBatch shape, Scalar* matrix,
                                cudaStream_t stream) {
  unpack_kernel<<<tiles(shape), dim3(kTile, kTileRows), 0, stream>>>(packed, shape, matrix);
  return cudaGetLastError();
}

template cudaError_t launch_pack_upper(const float*, SquareBatch, float, float*, cudaStream_t);
template cudaError_t launch_pack_upper(const double*, SquareBatch, double, double*, cudaStream_t);
template cudaError_t launch_unpack_upper(const float*, SquareBatch, float*, cudaStream_t);
template cudaError_t launch_unpack_upper(const double*, SquareBatch, double*, cudaStream_t);

}  // namespace spdkfac
