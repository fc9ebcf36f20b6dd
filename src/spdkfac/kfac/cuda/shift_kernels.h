// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "spdkfac/kfac/shift_assembly.h"

namespace spdkfac::kfac {

constexpr int kShiftThreads = 256;  // of a block

// Queues one kernel on `stream` that writes the upper triangle of `sum`; `row_stride` in elements.
template <class Scalar>
cudaError_t launch_assemble(const ShiftAssembly<Scalar>& from, Scalar scale, Scalar keep,
                            Scalar* sum, std::int64_t row_stride, cudaStream_t stream);

// The patches of one edge: where its first position meets the image, positions and places.
struct EdgeGrid {
  std::int32_t origin[2];
  std::uint32_t size[2];
  std::uint32_t kernel[2];
};
struct EdgeGrids {
  EdgeGrid edge[4];
  std::uint32_t dilation[2];
};
// Images [examples, channels, height, width], strides in elements.
struct ImageLayout {
  std::int64_t size[4];
  std::int64_t stride[4];
};
// Writes the patches of `count` edges to `patches` [count, features, columns], or with the features
// last, zero where an edge has fewer; one kernel on `stream`.
template <class Scalar>
cudaError_t launch_gather_edges(const Scalar* images, const ImageLayout& shape,
                                const EdgeGrids& grids, int count, bool features_last,
                                std::uint32_t features, std::uint32_t columns, Scalar* patches,
                                cudaStream_t stream);

}  // namespace spdkfac::kfac
