// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/inverse_kernels.h"
#include "spdkfac/kfac/cuda/triangle_tiles.h"

namespace spdkfac::kfac {
namespace {

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

template <class Scalar>
__global__ void load_kernel(const InverseEntry<Scalar>* entries, std::int64_t padded, Scalar* work,
                            const Scalar* scales, Scalar* diagonal, std::int32_t* failed) {
  const InverseEntry<Scalar> entry = entries[blockIdx.z];
  work += blockIdx.z * padded * padded;
  diagonal += blockIdx.z * padded;
  if (blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0) failed[blockIdx.z] = 0;
  mirror_tile<Scalar>(
      padded,
      [&](std::int64_t row, std::int64_t column) {
        if (column >= entry.dim) return row == column ? Scalar(1) : Scalar(0);
        Scalar value = entry.factor[row * entry.dim + column];
        if (row == column) value += *entry.damping * *entry.boost;
        return value * scales[blockIdx.z];
      },
      [&](std::int64_t row, std::int64_t column, Scalar value) {
        work[row * padded + column] = value;
        if (row == column) diagonal[row] = value;
      });
}

template <class Scalar>
__global__ void store_kernel(const InverseEntry<Scalar>* entries, std::int64_t padded,
                             const Scalar* work, const Scalar* scales, const std::int32_t* failed,
                             Scalar boost, Scalar max_boost) {
  const InverseEntry<Scalar> entry = entries[blockIdx.z];
  const bool bad = failed[blockIdx.z] != 0;
  if (blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0) {
    *entry.failures = bad ? 1 : 0;
    *entry.kept = bad;
    const Scalar more = *entry.boost * boost;
    *entry.boost = bad ? (more < max_boost ? more : max_boost) : Scalar(1);
  }
  if (bad) return;
  work += blockIdx.z * padded * padded;
  mirror_tile<Scalar>(
      entry.dim,
      [&](std::int64_t row, std::int64_t column) {
        return work[row * padded + column] * scales[blockIdx.z];
      },
      [&](std::int64_t row, std::int64_t column, Scalar value) {
        entry.value[row * entry.dim + column] = value;
      });
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

}  // namespace

template <class Scalar>
cudaError_t launch_load_damped(const InverseEntry<Scalar>* entries, std::int64_t batch,
                               std::int64_t padded, Scalar* work, Scalar* scales, Scalar* diagonal,
                               std::int32_t* failed, cudaStream_t stream) {
  scale_kernel<<<static_cast<unsigned>(batch), kScaleThreads, 0, stream>>>(entries, scales);
  load_kernel<<<triangle_tiles(padded, batch), tile_threads(), 0, stream>>>(
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
  store_kernel<<<triangle_tiles(padded, batch), tile_threads(), 0, stream>>>(
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

}  // namespace spdkfac::kfac
