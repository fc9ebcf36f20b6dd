// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/inverse_kernels.h"

namespace spdkfac {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;   // of threads; each serves kTile / kTileRows rows of a tile
constexpr int kPerThread = 4;  // rows, and columns, of a leaf that a thread holds in registers
constexpr int kScaleThreads = 256;
constexpr int kMaxExponent = 120;  // a larger power of two has no float as its reciprocal
// A pivot of so many roundings is none.
constexpr int kRounding = 2;

template <class Scalar>
__device__ constexpr Scalar epsilon() {
  return sizeof(Scalar) == 4 ? Scalar(1.1920929e-7) : Scalar(2.220446049250313e-16);
}

// One block per matrix.
template <class Scalar>
__global__ void scale_kernel(const InverseEntry<Scalar>* entries, Scalar* scales) {
  __shared__ Scalar largest[kScaleThreads];
  const InverseEntry<Scalar> entry = entries[blockIdx.x];
  Scalar own = 0;
  for (std::int64_t index = threadIdx.x; index < entry.dim; index += kScaleThreads) {
    own = fmax(own, fabs(entry.factor[index * entry.dim + index]));
  }
  largest[threadIdx.x] = own;
  for (int half = kScaleThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      largest[threadIdx.x] = fmax(largest[threadIdx.x], largest[threadIdx.x + half]);
    }
  }
  if (threadIdx.x > 0) return;
  const Scalar damped = largest[0] + fabs(*entry.damping * *entry.boost);
  int exponent = 0;
  if (isfinite(damped) && damped > Scalar(0)) frexp(damped, &exponent);
  scales[blockIdx.x] = ldexp(Scalar(1), exponent > kMaxExponent ? 0 : 1 - exponent);
}

// One block per tile on or above the diagonal, z per matrix; the tile goes through shared memory so
// that its mirror image is written in rows, too.
template <class Scalar>
__global__ void load_kernel(const InverseEntry<Scalar>* entries, std::int64_t padded, Scalar* work,
                            const Scalar* scales, Scalar* diagonal, std::int32_t* failed) {
  if (blockIdx.x < blockIdx.y) return;
  __shared__ Scalar tile[kTile][kTile + 1];
  const InverseEntry<Scalar> entry = entries[blockIdx.z];
  work += blockIdx.z * padded * padded;
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  for (int step = 0; step < kTile; step += kTileRows) {
    const std::int64_t row = std::int64_t{blockIdx.y} * kTile + threadIdx.y + step;
    Scalar value = row == column ? Scalar(1) : Scalar(0);
    if (row < entry.dim && column < entry.dim && row <= column) {
      value = entry.factor[row * entry.dim + column];
      if (row == column) value += *entry.damping * *entry.boost;
      value *= scales[blockIdx.z];
    }
    tile[threadIdx.y + step][threadIdx.x] = value;
    if (row <= column) work[row * padded + column] = value;
    if (row == column) diagonal[blockIdx.z * padded + row] = value;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) failed[blockIdx.z] = 0;
  __syncthreads();
  const std::int64_t mirrored_column = std::int64_t{blockIdx.y} * kTile + threadIdx.x;
  for (int step = 0; step < kTile; step += kTileRows) {
    const std::int64_t mirrored_row = std::int64_t{blockIdx.x} * kTile + threadIdx.y + step;
    if (mirrored_column < mirrored_row) {
      work[mirrored_row * padded + mirrored_column] = tile[threadIdx.x][threadIdx.y + step];
    }
  }
}

template <class Scalar>
__global__ void store_kernel(const InverseEntry<Scalar>* entries, std::int64_t padded,
                             const Scalar* work, const Scalar* scales, const std::int32_t* failed,
                             Scalar boost, Scalar max_boost) {
  if (blockIdx.x < blockIdx.y) return;
  __shared__ Scalar tile[kTile][kTile + 1];
  const InverseEntry<Scalar> entry = entries[blockIdx.z];
  const bool bad = failed[blockIdx.z] != 0;
  if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) {
    *entry.failures = bad ? 1 : 0;
    *entry.kept = bad;
    const Scalar more = *entry.boost * boost;
    *entry.boost = bad ? (more < max_boost ? more : max_boost) : Scalar(1);
  }
  if (bad) return;
  work += blockIdx.z * padded * padded;
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  for (int step = 0; step < kTile; step += kTileRows) {
    const std::int64_t row = std::int64_t{blockIdx.y} * kTile + threadIdx.y + step;
    if (row < entry.dim && column < entry.dim && row <= column) {
      const Scalar value = work[row * padded + column] * scales[blockIdx.z];
      entry.value[row * entry.dim + column] = value;
      tile[threadIdx.y + step][threadIdx.x] = value;
    }
  }
  __syncthreads();
  const std::int64_t mirrored_column = std::int64_t{blockIdx.y} * kTile + threadIdx.x;
  for (int step = 0; step < kTile; step += kTileRows) {
    const std::int64_t mirrored_row = std::int64_t{blockIdx.x} * kTile + threadIdx.y + step;
    if (mirrored_row < entry.dim && mirrored_column < mirrored_row) {
      entry.value[mirrored_row * entry.dim + mirrored_column] =
          tile[threadIdx.x][threadIdx.y + step];
    }
  }
}

// One block per matrix; the whole leaf is in registers, 4x4 elements a thread, and each step's
// pivot row and column pass through shared memory. Rows and columns beyond `size` are the
// identity's.
template <class Scalar, int kLeaf>
__global__ void __launch_bounds__((kLeaf / kPerThread) * (kLeaf / kPerThread))
    leaf_kernel(Scalar* work, const Scalar* diagonal, std::int64_t padded, std::int64_t begin,
                int size, std::int32_t* failed) {
  constexpr int kSide = kLeaf / kPerThread;
  __shared__ Scalar pivot_row[2][kLeaf];
  __shared__ Scalar pivot_column[2][kLeaf];
  __shared__ Scalar least[kLeaf];
  work += blockIdx.x * padded * padded + begin * padded + begin;
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
  if (static_cast<int>(threadIdx.x) < size) {
    least[threadIdx.x] =
        kRounding * epsilon<Scalar>() * diagonal[blockIdx.x * padded + begin + threadIdx.x];
  }
  Scalar value[kPerThread][kPerThread];
#pragma unroll
  for (int r = 0; r < kPerThread; ++r) {
#pragma unroll
    for (int c = 0; c < kPerThread; ++c) {
      const int row = y + kSide * r;
      const int column = x + kSide * c;
      value[r][c] = row < size && column < size ? work[row * padded + column]
                                                : (row == column ? Scalar(1) : Scalar(0));
    }
  }
  int buffer = 0;
  bool bad = false;
#pragma unroll
  for (int part = 0; part < kPerThread; ++part) {
    for (int index = 0; index < kSide; ++index) {
      const int pivot = part * kSide + index;
      if (pivot >= size) break;
      if (y == index) {
#pragma unroll
        for (int c = 0; c < kPerThread; ++c) pivot_row[buffer][x + kSide * c] = value[part][c];
      }
      if (x == index) {
#pragma unroll
        for (int r = 0; r < kPerThread; ++r) pivot_column[buffer][y + kSide * r] = value[r][part];
      }
      __syncthreads();
      Scalar at_pivot = pivot_row[buffer][pivot];
      if (!(at_pivot > Scalar(0) && at_pivot > least[pivot]) || !isfinite(at_pivot)) {
        bad = true;
        at_pivot = Scalar(1);
      }
      const Scalar reciprocal = Scalar(1) / at_pivot;
      Scalar along[kPerThread];
      Scalar down[kPerThread];
#pragma unroll
      for (int c = 0; c < kPerThread; ++c) along[c] = pivot_row[buffer][x + kSide * c];
#pragma unroll
      for (int r = 0; r < kPerThread; ++r) {
        down[r] = pivot_column[buffer][y + kSide * r] * reciprocal;
      }
#pragma unroll
      for (int r = 0; r < kPerThread; ++r) {
#pragma unroll
        for (int c = 0; c < kPerThread; ++c) value[r][c] -= down[r] * along[c];
      }
      if (y == index) {
#pragma unroll
        for (int c = 0; c < kPerThread; ++c) value[part][c] = along[c] * reciprocal;
      }
      if (x == index) {
#pragma unroll
        for (int r = 0; r < kPerThread; ++r) value[r][part] = -down[r];
        if (y == index) value[part][part] = reciprocal;
      }
      buffer ^= 1;
    }
  }
#pragma unroll
  for (int r = 0; r < kPerThread; ++r) {
#pragma unroll
    for (int c = 0; c < kPerThread; ++c) {
      const int row = y + kSide * r;
      const int column = x + kSide * c;
      if (row < size && column < size) work[row * padded + column] = value[r][c];
    }
  }
  if (bad && threadIdx.x == 0) failed[blockIdx.x] = 1;
}

dim3 tiles(std::int64_t size, std::int64_t batch) {
  const auto side = static_cast<unsigned>((size + kTile - 1) / kTile);
  return dim3(side, side, static_cast<unsigned>(batch));
}

}  // namespace

template <class Scalar>
cudaError_t launch_load_damped(const InverseEntry<Scalar>* entries, std::int64_t batch,
                               std::int64_t padded, Scalar* work, Scalar* scales, Scalar* diagonal,
                               std::int32_t* failed, cudaStream_t stream) {
  scale_kernel<<<static_cast<unsigned>(batch), kScaleThreads, 0, stream>>>(entries, scales);
  load_kernel<<<tiles(padded, batch), dim3(kTile, kTileRows), 0, stream>>>(
      entries, padded, work, scales, diagonal, failed);
  return cudaGetLastError();
}

template <class Scalar>
cudaError_t launch_invert_leaf(Scalar* work, const Scalar* diagonal, std::int64_t batch,
                               std::int64_t padded, std::int64_t begin, std::int64_t size,
                               std::int32_t* failed, cudaStream_t stream) {
  constexpr int kLeaf = static_cast<int>(kInverseLeaf<Scalar>);
  constexpr int kThreads = (kLeaf / kPerThread) * (kLeaf / kPerThread);
  leaf_kernel<Scalar, kLeaf><<<static_cast<unsigned>(batch), kThreads, 0, stream>>>(
      work, diagonal, padded, begin, static_cast<int>(size), failed);
  return cudaGetLastError();
}

template <class Scalar>
cudaError_t launch_store_inverse(const InverseEntry<Scalar>* entries, std::int64_t batch,
                                 std::int64_t padded, const Scalar* work, const Scalar* scales,
                                 const std::int32_t* failed, Scalar boost, Scalar max_boost,
                                 cudaStream_t stream) {
  store_kernel<<<tiles(padded, batch), dim3(kTile, kTileRows), 0, stream>>>(
      entries, padded, work, scales, failed, boost, max_boost);
  return cudaGetLastError();
}

#define SPDKFAC_INSTANTIATE(Scalar)                                                                \
  template cudaError_t launch_load_damped(const InverseEntry<Scalar>*, std::int64_t, std::int64_t, \
                                          Scalar*, Scalar*, Scalar*, std::int32_t*, cudaStream_t); \
  template cudaError_t launch_invert_leaf(Scalar*, const Scalar*, std::int64_t, std::int64_t,      \
                                          std::int64_t, std::int64_t, std::int32_t*,               \
                                          cudaStream_t);                                           \
  template cudaError_t launch_store_inverse(const InverseEntry<Scalar>*, std::int64_t,             \
                                            std::int64_t, const Scalar*, const Scalar*,            \
                                            const std::int32_t*, Scalar, Scalar, cudaStream_t);
SPDKFAC_INSTANTIATE(float)
SPDKFAC_INSTANTIATE(double)
#undef SPDKFAC_INSTANTIATE

}  // namespace spdkfac
