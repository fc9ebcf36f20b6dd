// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/graft_kernels.h"
#include "spdkfac/kfac/cuda/kernel_parts.h"

namespace spdkfac::kfac {
namespace {

constexpr int kThreads = 256;

// Calls take(gradient, place in the moments) for the elements that are this thread's.
template <class Scalar, class Take>
__device__ void each_element(const AdamEntry<Scalar>& entry, const Take& take) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % kWarp);
  each_row_piece(
      entry.rows, entry.columns, [&](std::int32_t row, std::int32_t begin, std::int32_t end) {
        Scalar* const gradient = entry.gradient + row_place(entry, row);
        const std::int64_t moments = std::int64_t{row} * entry.moment_step;
        for (std::int32_t column = begin + lane; column < end; column += kWarp) {
          const std::int64_t place = row == entry.bias_row
                                         ? std::int64_t{column + 1} * entry.moment_step - 1
                                         : moments + column;
          take(gradient[column], place);
        }
      });
}

// Along y a layer each.
template <class Scalar>
__global__ void find_bad_kernel(const AdamEntry<Scalar>* entries, std::int32_t* bad) {
  const AdamEntry<Scalar> entry = entries[blockIdx.y];
  bool fine = true;
  each_element(entry, [&](const Scalar& gradient, std::int64_t) {
    fine = fine && isfinite(gradient * gradient);
  });
  if (!fine) *bad = 1;
}

template <class Scalar>
__global__ void adam_kernel(const AdamEntry<Scalar>* entries, AdamNumbers numbers,
                            const std::int32_t* bad, double* partial) {
  const AdamEntry<Scalar> entry = entries[blockIdx.y];
  const bool clear = *bad != 0;
  const auto beta1 = static_cast<Scalar>(numbers.beta1);
  const auto beta2 = static_cast<Scalar>(numbers.beta2);
  const auto rest1 = static_cast<Scalar>(1 - numbers.beta1);
  const auto rest2 = static_cast<Scalar>(1 - numbers.beta2);
  const auto epsilon = static_cast<Scalar>(numbers.epsilon);
  double sum = 0;
  each_element(entry, [&](Scalar& gradient, std::int64_t place) {
    const Scalar taken = clear ? Scalar(0) : gradient;
    const Scalar first = beta1 * entry.first[place] + rest1 * taken;
    const Scalar second = beta2 * entry.second[place] + rest2 * taken * taken;
    entry.first[place] = first;
    entry.second[place] = second;
    gradient = clear ? static_cast<Scalar>(NAN) : first;
    const auto step = static_cast<double>(first / (sqrt(second) + epsilon));
    sum += step * step;
  });
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.y * kAdamParts + blockIdx.x] = sum;
}

// One block per layer.
__global__ void add_parts_kernel(const double* partial, double* lengths) {
  static_assert(kAdamParts == kThreads);
  const double sum = block_sum<kThreads>(partial[blockIdx.x * kAdamParts + threadIdx.x]);
  if (threadIdx.x == 0) lengths[blockIdx.x] = sqrt(sum);
}

}  // namespace

template <class Scalar>
cudaError_t launch_adam(const AdamEntry<Scalar>* entries, std::int64_t count,
                        const AdamNumbers& numbers, std::int32_t* bad, double* partial,
                        double* lengths, cudaStream_t stream) {
  const dim3 parts(kAdamParts, static_cast<unsigned>(count));
  const cudaError_t cleared = cudaMemsetAsync(bad, 0, sizeof(*bad), stream);
  if (cleared != cudaSuccess) return cleared;
  find_bad_kernel<<<parts, kThreads, 0, stream>>>(entries, bad);
  adam_kernel<<<parts, kThreads, 0, stream>>>(entries, numbers, bad, partial);
  add_parts_kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(partial, lengths);
  return cudaGetLastError();
}

#define SPDKFAC_INSTANTIATE(Scalar)                                                            \
  template cudaError_t launch_adam(const AdamEntry<Scalar>*, std::int64_t, const AdamNumbers&, \
                                   std::int32_t*, double*, double*, cudaStream_t);
SPDKFAC_INSTANTIATE(float)
SPDKFAC_INSTANTIATE(double)
#undef SPDKFAC_INSTANTIATE

}  // namespace spdkfac::kfac
