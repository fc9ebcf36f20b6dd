// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/shift_kernels.h"

namespace spdkfac::kfac {
namespace {

constexpr int kThreads = kShiftThreads;

// One row of the factor for each y, its columns from the diagonal on along x.
template <class Scalar>
__global__ void assemble_kernel(ShiftAssembly<Scalar> from, Scalar scale, Scalar keep, Scalar* sum,
                                std::int64_t row_stride) {
  const auto row = static_cast<std::int32_t>(blockIdx.y);
  const auto column = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (column < row || column >= from.dim) return;
  const Scalar value = scale * shifted_element(from, row, column);
  Scalar* const to = sum + row * row_stride + column;
  *to = keep == Scalar(0) ? value : *to + value;
}

// Neighbouring threads take neighbouring features of a position where channels are last, in which
// order they also write; otherwise positions of a feature. An edge for each z.
template <class Scalar>
__global__ void gather_kernel(const Scalar* images, ImageLayout shape, EdgeGrids grids,
                              bool features_last, std::uint32_t features, std::uint32_t columns,
                              Scalar* patches) {
  const std::uint32_t along = blockIdx.y * kThreads + threadIdx.x;
  const std::uint32_t width = features_last ? features : columns;
  if (along >= width) return;
  const std::uint32_t feature = features_last ? along : blockIdx.x;
  const std::uint32_t column = features_last ? blockIdx.x : along;
  const EdgeGrid& edge = grids.edge[blockIdx.z];
  const std::uint32_t places = edge.kernel[0] * edge.kernel[1];
  const std::uint32_t channel = feature / places;
  const std::uint32_t place = feature - channel * places;
  const std::uint32_t place_row = place / edge.kernel[1];
  const std::uint32_t positions = edge.size[0] * edge.size[1];
  const std::uint32_t example = column / positions;
  const std::uint32_t position = column - example * positions;
  const std::uint32_t position_row = position / edge.size[1];
  const std::int32_t row =
      edge.origin[0] + static_cast<std::int32_t>(position_row + place_row * grids.dilation[0]);
  const std::int32_t pixel =
      edge.origin[1] +
      static_cast<std::int32_t>(position - position_row * edge.size[1] +
                                (place - place_row * edge.kernel[1]) * grids.dilation[1]);
  Scalar value = 0;
  if (channel < shape.size[1] && example < shape.size[0] && row >= 0 && row < shape.size[2] &&
      pixel >= 0 && pixel < shape.size[3]) {
    value = images[example * shape.stride[0] + channel * shape.stride[1] + row * shape.stride[2] +
                   pixel * shape.stride[3]];
  }
  patches[(std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x) * width + along] = value;
}

}  // namespace

template <class Scalar>
cudaError_t launch_gather_edges(const Scalar* images, const ImageLayout& shape,
                                const EdgeGrids& grids, int count, bool features_last,
                                std::uint32_t features, std::uint32_t columns, Scalar* patches,
                                cudaStream_t stream) {
  const std::uint32_t along = features_last ? features : columns;
  const dim3 grid(features_last ? columns : features, (along + kThreads - 1) / kThreads,
                  static_cast<unsigned>(count));
  gather_kernel<<<grid, kThreads, 0, stream>>>(images, shape, grids, features_last, features,
                                               columns, patches);
  return cudaGetLastError();
}

template cudaError_t launch_gather_edges(const float*, const ImageLayout&, const EdgeGrids&, int,
                                         bool, std::uint32_t, std::uint32_t, float*, cudaStream_t);
template cudaError_t launch_gather_edges(const double*, const ImageLayout&, const EdgeGrids&, int,
                                         bool, std::uint32_t, std::uint32_t, double*, cudaStream_t);

template <class Scalar>
cudaError_t launch_assemble(const ShiftAssembly<Scalar>& from, Scalar scale, Scalar keep,
                            Scalar* sum, std::int64_t row_stride, cudaStream_t stream) {
  const auto dim = static_cast<unsigned>(from.dim);
  assemble_kernel<<<dim3((dim + kThreads - 1) / kThreads, dim), kThreads, 0, stream>>>(
      from, scale, keep, sum, row_stride);
  return cudaGetLastError();
}

template cudaError_t launch_assemble(const ShiftAssembly<float>&, float, float, float*,
                                     std::int64_t, cudaStream_t);
template cudaError_t launch_assemble(const ShiftAssembly<double>&, double, double, double*,
                                     std::int64_t, cudaStream_t);

}  // namespace spdkfac::kfac
