// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace spdkfac {

// Elements in one piece of the GPU's memory.
template <class Scalar>
struct GradientEntry {
  Scalar* values;
  std::int64_t count;
  bool scaled;
};

// Entries that one launch takes.
constexpr int kGradientEntries = 128;

// values = bad ? 0 : scaled ? scale·values : values for all entries; one kernel on `stream`.
template <class Scalar>
cudaError_t launch_scale_or_clear(const GradientEntry<Scalar>* entries, int count,
                                  const double* scale, const bool* bad, cudaStream_t stream);

}  // namespace spdkfac
