// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/gradient_kernels.h"
#include "spdkfac/kfac/cuda/kernel_parts.h"

namespace spdkfac::kfac {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 64;  // that share an entry

template <class Scalar>
__global__ void scale_or_clear_kernel(Entries<GradientEntry<Scalar>, kGradientEntries> entries,
                                      const double* scale, const bool* bad) {
  const GradientEntry<Scalar>& entry = entries.entry[blockIdx.y];
  const bool clear = *bad;
  if (!clear && !entry.scaled) return;
  const auto factor = static_cast<Scalar>(*scale);
  const std::int64_t step = std::int64_t{kBlocks} * kThreads;
  for (std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; index < entry.count;
       index += step) {
    entry.values[index] = clear ? Scalar(0) : factor * entry.values[index];
  }
}

// Along y an entry each; threads follow the rows of the matrix.
template <class Scalar, bool kToMatrix>
__global__ void join_kernel(Entries<JoinEntry<Scalar>, kJoinEntries> entries) {
  const JoinEntry<Scalar>& entry = entries.entry[blockIdx.y];
  const std::int32_t width = entry.columns + (entry.has_bias ? 1 : 0);
  const std::int32_t taps = entry.channels > 0 ? entry.columns / entry.channels : 1;
  const std::int32_t count = entry.rows * width;
  for (std::int32_t index = blockIdx.x * kThreads + threadIdx.x; index < count;
       index += kBlocks * kThreads) {
    const std::int32_t row = index / width;
    const std::int32_t column = index - row * width;
    if (column == entry.columns) {
      if (kToMatrix) {
        entry.joined[index] = entry.bias ? entry.bias[row] : Scalar(0);
      } else if (entry.bias) {
        entry.bias[row] = entry.joined[index];
      }
      continue;
    }
    const std::int32_t place =
        entry.channels > 0 ? column % taps * entry.channels + column / taps : column;
    Scalar& there = entry.weight[row * entry.columns + place];
    if (kToMatrix) {
      entry.joined[index] = there;
    } else {
      there = entry.joined[index];
    }
  }
}

template <class Scalar>
__global__ void inner_kernel(const Scalar* left, const Scalar* right, std::int64_t count,
                             double* partial) {
  double sum = 0;
  for (std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; index < count;
       index += std::int64_t{kInnerParts} * kThreads) {
    sum += static_cast<double>(left[index]) * static_cast<double>(right[index]);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void add_parts_kernel(const double* partial, double* sum) {
  double own = 0;
  for (int index = threadIdx.x; index < kInnerParts; index += kThreads) own += partial[index];
  own = block_sum<kThreads>(own);
  if (threadIdx.x == 0) *sum = own;
}

dim3 blocks_of(int count) { return dim3(kBlocks, static_cast<unsigned>(count)); }

}  // namespace

template <class Scalar>
cudaError_t launch_scale_or_clear(const GradientEntry<Scalar>* entries, int count,
                                  const double* scale, const bool* bad, cudaStream_t stream) {
  scale_or_clear_kernel<<<blocks_of(count), kThreads, 0, stream>>>(
      copied<kGradientEntries>(entries, count), scale, bad);
  return cudaGetLastError();
}

template <class Scalar>
cudaError_t launch_join_gradients(const JoinEntry<Scalar>* entries, int count,
                                  cudaStream_t stream) {
  join_kernel<Scalar, true>
      <<<blocks_of(count), kThreads, 0, stream>>>(copied<kJoinEntries>(entries, count));
  return cudaGetLastError();
}

template <class Scalar>
cudaError_t launch_split_gradients(const JoinEntry<Scalar>* entries, int count,
                                   cudaStream_t stream) {
  join_kernel<Scalar, false>
      <<<blocks_of(count), kThreads, 0, stream>>>(copied<kJoinEntries>(entries, count));
  return cudaGetLastError();
}

template <class Scalar>
cudaError_t launch_inner(const Scalar* left, const Scalar* right, std::int64_t count,
                         double* partial, double* sum, cudaStream_t stream) {
  inner_kernel<<<kInnerParts, kThreads, 0, stream>>>(left, right, count, partial);
  add_parts_kernel<<<1, kThreads, 0, stream>>>(partial, sum);
  return cudaGetLastError();
}

#define SPDKFAC_INSTANTIATE(Scalar)                                                               \
  template cudaError_t launch_scale_or_clear(const GradientEntry<Scalar>*, int, const double*,    \
                                             const bool*, cudaStream_t);                          \
  template cudaError_t launch_join_gradients(const JoinEntry<Scalar>*, int, cudaStream_t);        \
  template cudaError_t launch_split_gradients(const JoinEntry<Scalar>*, int, cudaStream_t);       \
  template cudaError_t launch_inner(const Scalar*, const Scalar*, std::int64_t, double*, double*, \
                                    cudaStream_t);
SPDKFAC_INSTANTIATE(float)
SPDKFAC_INSTANTIATE(double)
#undef SPDKFAC_INSTANTIATE

}  // namespace spdkfac::kfac
