// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/symmetric_cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/in_parts.h"
#include "spdkfac/kfac/cuda/symmetric_kernels.h"

namespace spdkfac::kfac {
namespace {

// The grid's limit for groups.
constexpr std::int64_t kMaxGroups = 65535;

SquareBatch shape_of(const at::Tensor& matrix) {
  const bool batched = matrix.dim() == 3;
  const SquareBatch shape{.groups = batched ? matrix.size(0) : 1,
                          .dim = matrix.size(-1),
                          .group_stride = batched ? matrix.stride(0) : 0,
                          .row_stride = matrix.stride(-2)};
  SPDKFAC_CHECK(shape.groups <= kMaxGroups, "more groups than one kernel takes");
  return shape;
}

}  // namespace

void pack_upper_cuda(const std::vector<Triangle>& triangles) {
  const at::Tensor& first = triangles.front().matrix;
  const c10::cuda::CUDAGuard guard(first.device());
  AT_DISPATCH_FLOATING_TYPES(first.scalar_type(), "pack_upper", [&] {
    std::vector<PackEntry<scalar_t>> entries;
    for (const Triangle& one : triangles) {
      if (one.matrix.numel() == 0) continue;
      const SquareBatch shape = shape_of(one.matrix);
      entries.push_back({.matrix = one.matrix.const_data_ptr<scalar_t>(),
                         .packed = one.packed.mutable_data_ptr<scalar_t>(),
                         .group_stride = shape.group_stride,
                         .row_stride = shape.row_stride,
                         .scale = static_cast<scalar_t>(one.scale),
                         .groups = static_cast<std::int32_t>(shape.groups),
                         .dim = static_cast<std::int32_t>(shape.dim)});
    }
    in_parts(entries, kPackEntries, [&](const auto* part, int size) {
      return launch_pack_upper(part, size, c10::cuda::getCurrentCUDAStream());
    });
  });
}

void unpack_upper_cuda(const at::Tensor& packed, at::Tensor matrix) {
  if (matrix.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(matrix.device());
  AT_DISPATCH_FLOATING_TYPES(matrix.scalar_type(), "unpack_upper", [&] {
    C10_CUDA_CHECK(launch_unpack_upper(packed.const_data_ptr<scalar_t>(), shape_of(matrix),
                                       matrix.mutable_data_ptr<scalar_t>(),
                                       c10::cuda::getCurrentCUDAStream()));
  });
}

}  // namespace spdkfac::kfac
