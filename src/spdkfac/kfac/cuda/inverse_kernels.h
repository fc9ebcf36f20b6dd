// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace spdkfac::kfac {

// One matrix of a batch of inversions; all pointers are the GPU's.
template <class Scalar>
struct InverseEntry {
  const Scalar* factor;    // its upper triangle, rows of `dim` elements
  Scalar* value;           // the inverse, rows of `dim` elements that begin at each `value_step`
  const Scalar* damping;   // for the diagonal
  std::int32_t* failures;  // of the last refresh: 1 if pivots were raised
  bool* kept;              // whether `value` is older, because the factor is not finite
  std::int32_t dim;
  std::int32_t value_step;
};

// The largest block that launch_factor_leaf takes.
template <class Scalar>
constexpr std::int64_t kInverseLeaf = sizeof(Scalar) == 4 ? 128 : 64;

// `work` holds [batch, padded, padded], `scales`, `dampings` and `states` (PivotState) [batch]; one
// kernel each, or two, on `stream`.

// Writes factors with damping to the work space, both triangles, the identity beyond their
// dimension, and their diagonals to `diagonal` [batch, padded]; all multiplied by a power of two
// that brings the largest of the diagonal between 1 and 2, which `scales` keeps. `dampings` is what
// was added (damping_above_rounding). Begins `states`.
template <class Scalar>
cudaError_t launch_load_damped(const InverseEntry<Scalar>* entries, std::int64_t batch,
                               std::int64_t padded, Scalar* work, Scalar* scales, Scalar* dampings,
                               Scalar* diagonal, std::int32_t* states, cudaStream_t stream);

// Makes W (block_inverse.h) of the diagonal blocks of rows begin to begin + size by elimination,
// whose pivots are those of safe_pivot().
template <class Scalar>
cudaError_t launch_factor_leaf(Scalar* work, const Scalar* diagonal, std::int64_t batch,
                               std::int64_t padded, std::int64_t begin, std::int64_t size,
                               std::int32_t* states, cudaStream_t stream);

// Copies the upper triangles, multiplied by `scales`, to the inverses, and mirrors them, where the
// factor is finite and not zero.
template <class Scalar>
cudaError_t launch_store_inverse(const InverseEntry<Scalar>* entries, std::int64_t batch,
                                 std::int64_t padded, const Scalar* work, const Scalar* scales,
                                 const std::int32_t* states, cudaStream_t stream);

}  // namespace spdkfac::kfac
