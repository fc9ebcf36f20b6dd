// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace spdkfac::kfac {

// Elements in one piece of the GPU's memory.
template <class Scalar>
struct GradientEntry {
  Scalar* values;
  std::int64_t count;
  bool scaled;
};

// A layer's gradients and the matrix of both (join_gradient in precondition.h).
template <class Scalar>
struct JoinEntry {
  Scalar* weight;  // `rows` rows of `columns` elements
  Scalar* bias;    // null: none, or zeros
  Scalar* joined;  // rows of `columns`, and one more with `has_bias`
  std::int32_t rows;
  std::int32_t columns;
  // Of a row of the weight, if these lie side by side; 0: it is in the order of the matrix.
  std::int32_t channels;
  bool has_bias;
};

// Entries that one launch takes.
constexpr int kGradientEntries = 128;
constexpr int kJoinEntries = 64;

// values = bad ? 0 : scaled ? scale·values : values for all entries; one kernel on `stream`.
template <class Scalar>
cudaError_t launch_scale_or_clear(const GradientEntry<Scalar>* entries, int count,
                                  const double* scale, const bool* bad, cudaStream_t stream);

// Copies gradients to their matrices, or back; one kernel.
template <class Scalar>
cudaError_t launch_join_gradients(const JoinEntry<Scalar>* entries, int count, cudaStream_t stream);
template <class Scalar>
cudaError_t launch_split_gradients(const JoinEntry<Scalar>* entries, int count,
                                   cudaStream_t stream);

// *sum = Σ left·right, added up in double precision, always in the same order; `partial` has
// kInnerParts elements. Two kernels.
constexpr int kInnerParts = 512;
template <class Scalar>
cudaError_t launch_inner(const Scalar* left, const Scalar* right, std::int64_t count,
                         double* partial, double* sum, cudaStream_t stream);

}  // namespace spdkfac::kfac
