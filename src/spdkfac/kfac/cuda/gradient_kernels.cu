// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/gradient_kernels.h"
#include "spdkfac/kfac/cuda/kernel_parts.h"

namespace spdkfac::kfac {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 256;  // that share an entry

template <class Scalar>
__global__ void scale_or_clear_kernel(Entries<GradientEntry<Scalar>, kGradientEntries> entries,
                                      const bool* bad) {
  const GradientEntry<Scalar>& entry = entries.entry[blockIdx.y];
  const bool clear = *bad;
  if (!clear && entry.scale == nullptr) return;
  const auto factor = static_cast<Scalar>(clear ? 0 : *entry.scale);
  const std::int64_t step = std::int64_t{kBlocks} * kThreads;
  for (std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; index < entry.count;
       index += step) {
    entry.values[index] = clear ? Scalar(0) : factor * entry.values[index];
  }
}

template <bool kToMatrix, class Scalar>
__device__ void copy_bias(Scalar* bias, std::int32_t index, Scalar& in_matrix) {
  if (kToMatrix) {
    in_matrix = bias ? bias[index] : Scalar(0);
  } else if (bias) {
    bias[index] = in_matrix;
  }
}

// Along y an entry each.
template <class Scalar, bool kToMatrix>
__global__ void join_kernel(Entries<JoinEntry<Scalar>, kJoinEntries> entries) {
  const JoinEntry<Scalar>& entry = entries.entry[blockIdx.y];
  const std::int32_t taps = entry.channels > 0 ? entry.columns / entry.channels : 1;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % kWarp);
  each_row_piece(
      entry.rows, entry.columns, [&](std::int32_t row, std::int32_t begin, std::int32_t end) {
        Scalar* const joined = entry.joined + row_place(entry, row);
        Scalar* const weight = entry.weight + std::int64_t{row} * entry.columns;
        for (std::int32_t column = begin + lane; column < end; column += kWarp) {
          const std::int32_t place =
              entry.channels > 0 ? column % taps * entry.channels + column / taps : column;
          if (kToMatrix) {
            joined[column] = weight[place];
          } else {
            weight[place] = joined[column];
          }
        }
        if (entry.place == BiasPlace::kColumn && begin + lane == 0) {
          copy_bias<kToMatrix>(entry.bias, row, joined[entry.columns]);
        }
        if (entry.place != BiasPlace::kRow || row > 0) return;
        Scalar* const last = joined + std::int64_t{entry.rows} * entry.row_step;
        for (std::int32_t column = begin + lane; column < end; column += kWarp) {
          copy_bias<kToMatrix>(entry.bias, column, last[column]);
        }
      });
}

// Of all groups; for all threads of a block together.
template <class Scalar>
__device__ bool has_inverses(const InnerEntry<Scalar>& entry) {
  bool all = true;
  for (std::int64_t group = threadIdx.x; group < entry.groups; group += kThreads) {
    all = all && entry.inverse_a[group * entry.step_a] > Scalar(0) &&
          entry.inverse_g[group * entry.step_g] > Scalar(0);
  }
  return __syncthreads_and(all ? 1 : 0) != 0;
}

// Along y a layer each. Those with inverses have nothing to do.
template <class Scalar>
__global__ void keep_gradient_kernel(const InnerEntry<Scalar>* entries) {
  const InnerEntry<Scalar> entry = entries[blockIdx.y];
  if (has_inverses(entry)) return;
  for (std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; index < entry.count;
       index += std::int64_t{kInnerParts} * kThreads) {
    entry.result[index] = entry.gradient[index];
  }
}

template <class Scalar>
__global__ void inner_kernel(const InnerEntry<Scalar>* entries, double* partial) {
  const InnerEntry<Scalar> entry = entries[blockIdx.y];
  double sum = 0;
  for (std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; index < entry.count;
       index += std::int64_t{kInnerParts} * kThreads) {
    sum += static_cast<double>(entry.gradient[index]) * static_cast<double>(entry.result[index]);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.y * kInnerParts + blockIdx.x] = sum;
}

// One block per layer.
template <class Scalar>
__global__ void add_parts_kernel(const InnerEntry<Scalar>* entries, const double* partial,
                                 double* sums) {
  const bool inverted = has_inverses(entries[blockIdx.x]);
  double sum = threadIdx.x < kInnerParts ? partial[blockIdx.x * kInnerParts + threadIdx.x] : 0;
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x > 0) return;
  sums[blockIdx.x] = !inverted ? -sum : sum < 0 ? 0 : sum;
}

dim3 blocks_of(int count) { return dim3(kBlocks, static_cast<unsigned>(count)); }

}  // namespace

template <class Scalar>
cudaError_t launch_scale_or_clear(const GradientEntry<Scalar>* entries, int count, const bool* bad,
                                  cudaStream_t stream) {
  scale_or_clear_kernel<<<blocks_of(count), kThreads, 0, stream>>>(
      copied<kGradientEntries>(entries, count), bad);
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
cudaError_t launch_inner(const InnerEntry<Scalar>* entries, std::int64_t count, double* partial,
                         double* sums, cudaStream_t stream) {
  const dim3 parts(kInnerParts, static_cast<unsigned>(count));
  keep_gradient_kernel<<<parts, kThreads, 0, stream>>>(entries);
  inner_kernel<<<parts, kThreads, 0, stream>>>(entries, partial);
  add_parts_kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(entries, partial, sums);
  return cudaGetLastError();
}

#define SPDKFAC_INSTANTIATE(Scalar)                                                            \
  template cudaError_t launch_scale_or_clear(const GradientEntry<Scalar>*, int, const bool*,   \
                                             cudaStream_t);                                    \
  template cudaError_t launch_join_gradients(const JoinEntry<Scalar>*, int, cudaStream_t);     \
  template cudaError_t launch_split_gradients(const JoinEntry<Scalar>*, int, cudaStream_t);    \
  template cudaError_t launch_inner(const InnerEntry<Scalar>*, std::int64_t, double*, double*, \
                                    cudaStream_t);
SPDKFAC_INSTANTIATE(float)
SPDKFAC_INSTANTIATE(double)
#undef SPDKFAC_INSTANTIATE

}  // namespace spdkfac::kfac
