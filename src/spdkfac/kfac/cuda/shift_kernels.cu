// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/shift_kernels.h"

namespace spdkfac {
namespace {

constexpr int kThreads = 256;

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

// A feature for each y, an edge for each z, positions of all examples along x.
template <class Scalar>
__global__ void gather_kernel(const Scalar* images, ImageLayout shape, EdgeGrids grids,
                              std::int64_t features, std::int64_t columns, Scalar* patches) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= columns) return;
  const EdgeGrid& edge = grids.edge[blockIdx.z];
  const auto feature = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t places = edge.kernel[0] * edge.kernel[1];
  const std::int32_t channel = feature / places;
  const std::int32_t place = feature - channel * places;
  const std::int64_t positions = std::int64_t{edge.size[0]} * edge.size[1];
  const std::int64_t example = column / positions;
  const auto position = static_cast<std::int32_t>(column - example * positions);
  const std::int32_t row =
      edge.origin[0] + position / edge.size[1] + place / edge.kernel[1] * grids.dilation[0];
  const std::int32_t pixel =
      edge.origin[1] + position % edge.size[1] + place % edge.kernel[1] * grids.dilation[1];
  Scalar value = 0;
  if (channel < shape.size[1] && example < shape.size[0] && row >= 0 && row < shape.size[2] &&
      pixel >= 0 && pixel < shape.size[3]) {
    value = images[example * shape.stride[0] + channel * shape.stride[1] + row * shape.stride[2] +
                   pixel * shape.stride[3]];
  }
  patches[(blockIdx.z * features + feature) * columns + column] = value;
}

}  // namespace

template <class Scalar>
cudaError_t launch_gather_edges(const Scalar* images, const ImageLayout& shape,
                                const EdgeGrids& grids, int count, std::int64_t features,
                                std::int64_t columns, Scalar* patches, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((columns + kThreads - 1) / kThreads),
                  static_cast<unsigned>(features), static_cast<unsigned>(count));
  gather_kernel<<<grid, kThreads, 0, stream>>>(images, shape, grids, features, columns, patches);
  return cudaGetLastError();
}

template cudaError_t launch_gather_edges(const float*, const ImageLayout&, const EdgeGrids&, int,
                                         std::int64_t, std::int64_t, float*, cudaStream_t);
template cudaError_t launch_gather_edges(const double*, const ImageLayout&, const EdgeGrids&, int,
                                         std::int64_t, std::int64_t, double*, cudaStream_t);

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

}  // namespace spdkfac
