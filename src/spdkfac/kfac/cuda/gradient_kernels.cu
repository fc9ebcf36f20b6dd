// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "spdkfac/kfac/cuda/gradient_kernels.h"

namespace spdkfac {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 64;  // that share an entry

template <class Scalar>
struct Entries {
  GradientEntry<Scalar> entry[kGradientEntries];
};

template <class Scalar>
__global__ void scale_or_clear_kernel(Entries<Scalar> entries, const double* scale,
                                      const bool* bad) {
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

}  // namespace

template <class Scalar>
cudaError_t launch_scale_or_clear(const GradientEntry<Scalar>* entries, int count,
                                  const double* scale, const bool* bad, cudaStream_t stream) {
  Entries<Scalar> all{};
  std::copy_n(entries, count, all.entry);
  scale_or_clear_kernel<<<dim3(kBlocks, static_cast<unsigned>(count)), kThreads, 0, stream>>>(
      all, scale, bad);
  return cudaGetLastError();
}

template cudaError_t launch_scale_or_clear(const GradientEntry<float>*, int, const double*,
                                           const bool*, cudaStream_t);
template cudaError_t launch_scale_or_clear(const GradientEntry<double>*, int, const double*,
                                           const bool*, cudaStream_t);

}  // namespace spdkfac
