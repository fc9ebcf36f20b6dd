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
  const double* scale;  // null: not scaled
};

// A layer's gradients and the matrix of both (join_gradient in precondition.h), or, for a weight
// [in, out], its transpose.
enum class BiasPlace { kNone, kColumn, kRow };  // the last one of the matrix
template <class Scalar>
struct JoinEntry {
  Scalar* weight;  // `rows` rows of `columns` elements
  Scalar* bias;    // null: none, or zeros
  Scalar* joined;
  std::int64_t group_step;  // from the matrix of a group to the next, in elements
  std::int32_t row_step;    // from a row of `joined` to the next
  std::int32_t group_rows;  // of the `rows`
  std::int32_t rows;
  std::int32_t columns;
  // Of a row of the weight, if these lie side by side; 0: it is in the order of the matrix.
  std::int32_t channels;
  BiasPlace place;
};

// Entries that one launch takes.
constexpr int kGradientEntries = 128;
constexpr int kJoinEntries = 64;

// values = bad ? 0 : *scale·values for all entries; one kernel on `stream`.
template <class Scalar>
cudaError_t launch_scale_or_clear(const GradientEntry<Scalar>* entries, int count, const bool* bad,
                                  cudaStream_t stream);

// Copies gradients to their matrices, or back; one kernel.
template <class Scalar>
cudaError_t launch_join_gradients(const JoinEntry<Scalar>* entries, int count, cudaStream_t stream);
template <class Scalar>
cudaError_t launch_split_gradients(const JoinEntry<Scalar>* entries, int count,
                                   cudaStream_t stream);

// A layer's gradient and preconditioned gradient, and the inverses between them.
template <class Scalar>
struct InnerEntry {
  const Scalar* gradient;
  Scalar* result;
  std::int64_t count;
  const Scalar* inverse_a;  // of the first group; its first element is 0 where there is none
  const Scalar* inverse_g;
  std::int64_t step_a;  // from the inverse of a group to the next, in elements
  std::int64_t step_g;
  std::int32_t groups;
};

// For each of `count` layers sums = ⟨gradient, result⟩, not below 0, added up in double precision,
// always in the same order. A layer without one of its inverses gets its gradient as the result,
// and the sum is −⟨gradient, gradient⟩. `entries` is the GPU's, `partial` has kInnerParts elements
// for each layer. Three kernels.
constexpr int kInnerParts = 64;
template <class Scalar>
cudaError_t launch_inner(const InnerEntry<Scalar>* entries, std::int64_t count, double* partial,
                         double* sums, cudaStream_t stream);

}  // namespace spdkfac::kfac
