// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/inverse_kernels.h"
#include "spdkfac/kfac/cuda/triangle_tiles.h"
#include "spdkfac/kfac/pivots.h"

namespace spdkfac::kfac {
namespace {

constexpr int kSide = 16;  // the threads of a leaf are a square of so many rows and columns
constexpr int kScaleThreads = 256;
constexpr int kMaxExponent = 120;  // a larger power of two has no float as its reciprocal

// One block per matrix.
template <class Scalar>
__global__ void scale_kernel(const InverseEntry<Scalar>* entries, Scalar* scales, Scalar* dampings,
                             std::int32_t* states) {
  __shared__ Scalar largest[kScaleThreads];
  __shared__ Scalar trace[kScaleThreads];
  const InverseEntry<Scalar> entry = entries[blockIdx.x];
  Scalar own_largest = 0;
  Scalar own_trace = 0;
  for (std::int64_t index = threadIdx.x; index < entry.dim; index += kScaleThreads) {
    const Scalar size = fabs(entry.factor[index * entry.dim + index]);
    own_largest = fmax(own_largest, size);
    own_trace += size;
  }
  largest[threadIdx.x] = own_largest;
  trace[threadIdx.x] = own_trace;
  for (int half = kScaleThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      largest[threadIdx.x] = fmax(largest[threadIdx.x], largest[threadIdx.x + half]);
      trace[threadIdx.x] += trace[threadIdx.x + half];
    }
  }
  if (threadIdx.x > 0) return;
  const Scalar damping = damping_above_rounding(*entry.damping, trace[0]);
  const Scalar damped = largest[0] + fabs(damping);
  int exponent = 0;
  if (isfinite(damped) && damped > Scalar(0)) frexp(damped, &exponent);
  scales[blockIdx.x] = ldexp(Scalar(1), exponent > kMaxExponent ? 0 : 1 - exponent);
  dampings[blockIdx.x] = damping;
  states[blockIdx.x] = trace[0] == Scalar(0) ? kPivotsNone : kPivotsFine;
}

template <class Scalar>
__global__ void load_kernel(const InverseEntry<Scalar>* entries, std::int64_t padded, Scalar* work,
                            const Scalar* scales, const Scalar* dampings, Scalar* diagonal) {
  const InverseEntry<Scalar> entry = entries[blockIdx.z];
  work += blockIdx.z * padded * padded;
  diagonal += blockIdx.z * padded;
  mirror_tile<Scalar>(
      padded,
      [&](std::int64_t row, std::int64_t column) {
        if (column >= entry.dim) return row == column ? Scalar(1) : Scalar(0);
        Scalar value = entry.factor[row * entry.dim + column];
        if (row == column) value += dampings[blockIdx.z];
        return value * scales[blockIdx.z];
      },
      [&](std::int64_t row, std::int64_t column, Scalar value) {
        work[row * padded + column] = value;
        if (row == column) diagonal[row] = value;
      });
}

template <class Scalar>
__global__ void store_kernel(const InverseEntry<Scalar>* entries, std::int64_t padded,
                             const Scalar* work, const Scalar* scales, const std::int32_t* states) {
  const InverseEntry<Scalar> entry = entries[blockIdx.z];
  const std::int32_t state = states[blockIdx.z];
  if (blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0) {
    *entry.failures = state == kPivotsRaised ? 1 : 0;
    *entry.kept = state == kPivotsNotFinite;
  }
  if (state == kPivotsNotFinite || state == kPivotsNone) return;
  work += blockIdx.z * padded * padded;
  mirror_tile<Scalar>(
      entry.dim,
      [&](std::int64_t row, std::int64_t column) {
        return work[row * padded + column] * scales[blockIdx.z];
      },
      [&](std::int64_t row, std::int64_t column, Scalar value) {
        entry.value[row * entry.value_step + column] = value;
      });
}

// One block per matrix. The whole leaf is in registers, a square of them for each thread: rows
// y + kSide·r, columns x + kSide·c. Each step's pivot row passes through shared memory. The
// trailing part is symmetric, so that row tells by how much each row below changes; only its upper
// triangle counts, and blocks below it are left alone until W overwrites them. Rows and columns
// beyond `size` are the identity's.
template <class Scalar, int kLeaf>
__global__ void __launch_bounds__(kSide* kSide)
    leaf_kernel(Scalar* work, const Scalar* diagonal, std::int64_t padded, std::int64_t begin,
                int size, std::int32_t* states) {
  constexpr int kPerThread = kLeaf / kSide;
  __shared__ Scalar pivot_row[2][kLeaf];
  __shared__ Scalar before[kLeaf];  // the diagonal, before any step
  __shared__ Scalar pivots[kLeaf];
  work += blockIdx.x * padded * padded + begin * padded + begin;
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
  if (static_cast<int>(threadIdx.x) < size) {
    before[threadIdx.x] = diagonal[blockIdx.x * padded + begin + threadIdx.x];
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
  std::int32_t state = kPivotsFine;  // of all threads alike
#pragma unroll
  for (int part = 0; part < kPerThread; ++part) {
    for (int index = 0; index < kSide; ++index) {
      const int pivot = part * kSide + index;
      if (pivot >= size) break;
      if (y == index) {
#pragma unroll
        for (int c = 0; c < kPerThread; ++c) pivot_row[buffer][x + kSide * c] = value[part][c];
      }
      __syncthreads();
      const Scalar at_pivot = safe_pivot(pivot_row[buffer][pivot], before[pivot], Scalar(1), state);
      const Scalar reciprocal = Scalar(1) / at_pivot;
      Scalar along[kPerThread];
#pragma unroll
      for (int c = 0; c < kPerThread; ++c) along[c] = pivot_row[buffer][x + kSide * c];
#pragma unroll
      for (int r = part; r < kPerThread; ++r) {
        const int row = y + kSide * r;
        const Scalar down = row > pivot ? pivot_row[buffer][row] * reciprocal : Scalar(0);
#pragma unroll
        for (int c = 0; c < kPerThread; ++c) {
          if (c <= part || c >= r) value[r][c] -= down * along[c];
        }
        if (x == index && row > pivot) value[r][part] = -down;
      }
      if (threadIdx.x == 0) pivots[pivot] = at_pivot;
      buffer ^= 1;
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kPerThread; ++r) {
    const int row = y + kSide * r;
    if (row >= size) break;
    const Scalar root = Scalar(1) / sqrt(pivots[row]);
#pragma unroll
    for (int c = 0; c < kPerThread; ++c) {
      const int column = x + kSide * c;
      const Scalar unit = column < row ? value[r][c] : Scalar(column == row ? 1 : 0);
      if (column < size) work[row * padded + column] = unit * root;
    }
  }
  if (threadIdx.x == 0 && state > states[blockIdx.x]) states[blockIdx.x] = state;
}

}  // namespace

template <class Scalar>
cudaError_t launch_load_damped(const InverseEntry<Scalar>* entries, std::int64_t batch,
                               std::int64_t padded, Scalar* work, Scalar* scales, Scalar* dampings,
                               Scalar* diagonal, std::int32_t* states, cudaStream_t stream) {
  scale_kernel<<<static_cast<unsigned>(batch), kScaleThreads, 0, stream>>>(entries, scales,
                                                                           dampings, states);
  load_kernel<<<triangle_tiles(padded, batch), tile_threads(), 0, stream>>>(
      entries, padded, work, scales, dampings, diagonal);
  return cudaGetLastError();
}

template <class Scalar>
cudaError_t launch_factor_leaf(Scalar* work, const Scalar* diagonal, std::int64_t batch,
                               std::int64_t padded, std::int64_t begin, std::int64_t size,
                               std::int32_t* states, cudaStream_t stream) {
  constexpr int kLeaf = static_cast<int>(kInverseLeaf<Scalar>);
  leaf_kernel<Scalar, kLeaf><<<static_cast<unsigned>(batch), kSide * kSide, 0, stream>>>(
      work, diagonal, padded, begin, static_cast<int>(size), states);
  return cudaGetLastError();
}

template <class Scalar>
cudaError_t launch_store_inverse(const InverseEntry<Scalar>* entries, std::int64_t batch,
                                 std::int64_t padded, const Scalar* work, const Scalar* scales,
                                 const std::int32_t* states, cudaStream_t stream) {
  store_kernel<<<triangle_tiles(padded, batch), tile_threads(), 0, stream>>>(entries, padded, work,
                                                                             scales, states);
  return cudaGetLastError();
}

#define SPDKFAC_INSTANTIATE(Scalar)                                                                \
  template cudaError_t launch_load_damped(const InverseEntry<Scalar>*, std::int64_t, std::int64_t, \
                                          Scalar*, Scalar*, Scalar*, Scalar*, std::int32_t*,       \
                                          cudaStream_t);                                           \
  template cudaError_t launch_factor_leaf(Scalar*, const Scalar*, std::int64_t, std::int64_t,      \
                                          std::int64_t, std::int64_t, std::int32_t*,               \
                                          cudaStream_t);                                           \
  template cudaError_t launch_store_inverse(const InverseEntry<Scalar>*, std::int64_t,             \
                                            std::int64_t, const Scalar*, const Scalar*,            \
                                            const std::int32_t*, cudaStream_t);
SPDKFAC_INSTANTIATE(float)
SPDKFAC_INSTANTIATE(double)
#undef SPDKFAC_INSTANTIATE

}  // namespace spdkfac::kfac
