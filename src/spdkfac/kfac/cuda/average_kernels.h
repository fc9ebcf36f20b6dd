// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace spdkfac::kfac {

// A batch's factor and the running average that takes it in; all pointers are the GPU's.
template <class Scalar>
struct AverageEntry {
  const Scalar* sum;  // [groups, dim, dim], or packed triangles
  Scalar* mean;       // [groups, dim, dim]
  double* weight;     // what the factor counts for; then 1 − decay
  double* taken;      // what it counted for: 0 if it was not finite, or its count 0
  bool* finite;
  const Scalar* count;  // what the scale is divided by; null: 1
  double scale;
  std::int64_t groups;
  std::int32_t dim;
  bool packed;
};

// Entries that one launch takes.
constexpr int kAverageEntries = 48;

// mean = (1 − w)·mean + w·scale·sum on the upper triangles of all entries, where the diagonal of
// scale·sum is finite and the count, which divides the scale, is not 0: two kernels on `stream`. At
// most kAverageEntries.
template <class Scalar>
cudaError_t launch_average(const AverageEntry<Scalar>* entries, int count, double decay,
                           cudaStream_t stream);

// The means of the diagonals of [groups, dim, dim], one for each group, to `means`.
template <class Scalar>
struct DiagonalEntry {
  const Scalar* matrices;
  Scalar* means;
  std::int64_t groups;
  std::int32_t dim;
};
template <class Scalar>
cudaError_t launch_diagonal_means(const DiagonalEntry<Scalar>* entries, int count,
                                  cudaStream_t stream);

}  // namespace spdkfac::kfac
