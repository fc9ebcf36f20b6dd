// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace spdkfac::kfac {

// A batch of row-major square matrices; strides in elements.
struct SquareBatch {
  std::int64_t groups = 1;
  std::int64_t dim = 0;
  std::int64_t group_stride = 0;
  std::int64_t row_stride = 0;
};

// Matrices whose scaled upper triangles are packed.
template <class Scalar>
struct PackEntry {
  const Scalar* matrix;
  Scalar* packed;
  std::int64_t group_stride;
  std::int64_t row_stride;
  Scalar scale;
  std::int32_t groups;
  std::int32_t dim;
};
constexpr int kPackEntries = 64;

// Both queue one kernel on `stream` and return its launch status. At most kPackEntries.
template <class Scalar>
cudaError_t launch_pack_upper(const PackEntry<Scalar>* entries, int count, cudaStream_t stream);
template <class Scalar>
cudaError_t launch_unpack_upper(const Scalar* packed, SquareBatch shape, Scalar* matrix,
                                cudaStream_t stream);

}  // namespace spdkfac::kfac
