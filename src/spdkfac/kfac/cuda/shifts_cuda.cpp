// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/shifts_cuda.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/shift_kernels.h"

namespace spdkfac::kfac {
namespace {

constexpr std::int64_t kMaxRows = 65535;  // the grid's limit

}  // namespace

at::Tensor gather_edges_cuda(const at::Tensor& images, const std::vector<EdgePatches>& edges,
                             std::array<std::int64_t, 2> dilation) {
  EdgeGrids grids{};
  std::int64_t features = 0;
  std::int64_t columns = 0;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    for (std::size_t axis = 0; axis < 2; ++axis) {
      grids.edge[i].origin[axis] = static_cast<std::int32_t>(edges[i].origin[axis]);
      grids.edge[i].size[axis] = static_cast<std::uint32_t>(edges[i].size[axis]);
      grids.edge[i].kernel[axis] = static_cast<std::uint32_t>(edges[i].kernel[axis]);
      grids.dilation[axis] = static_cast<std::uint32_t>(dilation[axis]);
    }
    features = std::max(features, images.size(1) * edges[i].kernel[0] * edges[i].kernel[1]);
    columns = std::max(columns, images.size(0) * edges[i].size[0] * edges[i].size[1]);
  }
  const bool features_last = images.stride(1) == 1;
  SPDKFAC_CHECK((features_last ? features : columns) <= kShiftThreads * kMaxRows &&
                    std::max(features, columns) <= std::numeric_limits<std::int32_t>::max(),
                "more patches than one kernel takes");
  ImageLayout shape{};
  for (int axis = 0; axis < 4; ++axis) {
    shape.size[axis] = images.size(axis);
    shape.stride[axis] = images.stride(axis);
  }
  const c10::cuda::CUDAGuard guard(images.device());
  const auto count = static_cast<std::int64_t>(edges.size());
  at::Tensor patches = at::empty({count, features, columns}, images.options());
  if (features_last) patches = patches.view({count, columns, features});
  AT_DISPATCH_FLOATING_TYPES(images.scalar_type(), "gather_edges", [&] {
    C10_CUDA_CHECK(launch_gather_edges(
        images.const_data_ptr<scalar_t>(), shape, grids, static_cast<int>(count), features_last,
        static_cast<std::uint32_t>(features), static_cast<std::uint32_t>(columns),
        patches.mutable_data_ptr<scalar_t>(), c10::cuda::getCurrentCUDAStream()));
  });
  return features_last ? patches.transpose(1, 2) : patches;
}

template <class Scalar>
void assemble_cuda(const ShiftAssembly<Scalar>& from, Scalar scale, Scalar keep,
                   const at::Tensor& sum) {
  SPDKFAC_CHECK(from.dim <= kMaxRows, "a factor with more rows than one kernel takes");
  const c10::cuda::CUDAGuard guard(sum.device());
  C10_CUDA_CHECK(launch_assemble(from, scale, keep, sum.mutable_data_ptr<Scalar>(), sum.stride(0),
                                 c10::cuda::getCurrentCUDAStream()));
}

template void assemble_cuda(const ShiftAssembly<float>&, float, float, const at::Tensor&);
template void assemble_cuda(const ShiftAssembly<double>&, double, double, const at::Tensor&);

}  // namespace spdkfac::kfac
