// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/shift_assembly.h"

namespace spdkfac::kfac {

// The patches of an edge of images [examples, channels, height, width]: positions of `kernel`, its
// corner at `origin` first.
struct EdgePatches {
  std::array<std::int64_t, 2> origin;
  std::array<std::int64_t, 2> size;
  std::array<std::int64_t, 2> kernel;
};
// Those of some edges, with one kernel on the current stream: [edges, features, columns], in the
// order of copy_patches(); zero beyond what an edge has.
at::Tensor gather_edges_cuda(const at::Tensor& images, const std::vector<EdgePatches>& edges,
                             std::array<std::int64_t, 2> dilation);

// sum = keep·sum + scale·(what `from` describes) on the upper triangle of a GPU's tensor, one
// kernel on its current stream; keep is 0 or 1. no_cuda/ has those of a build without CUDA, which
// throw.
template <class Scalar>
void assemble_cuda(const ShiftAssembly<Scalar>& from, Scalar scale, Scalar keep,
                   const at::Tensor& sum);

}  // namespace spdkfac::kfac
