// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/symmetric_cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/symmetric_kernels.h"

namespace spdkfac {
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

void pack_upper_cuda(const at::Tensor& matrix, at::Tensor packed, double scale) {
  if (matrix.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(matrix.device());
  AT_DISPATCH_FLOATING_TYPES(matrix.scalar_type(), "pack_upper", [&] {
    C10_CUDA_CHECK(launch_pack_upper(
        matrix.const_data_ptr<scalar_t>(), shape_of(matrix), static_cast<scalar_t>(scale),
        packed.mutable_data_ptr<scalar_t>(), c10::cuda::getCurrentCUDAStream()));
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

}  // namespace spdkfac
