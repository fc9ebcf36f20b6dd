// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "spdkfac/kfac/cuda/average_kernels.h"
#include "spdkfac/kfac/cuda/kernel_parts.h"
#include "spdkfac/kfac/cuda/triangle_lines.h"

namespace spdkfac::kfac {
namespace {

constexpr int kThreads = 256;

template <class Entry>
using AverageEntries = Entries<Entry, kAverageEntries>;

// Where the diagonal's element of a row lies.
template <class Scalar>
__device__ std::int64_t sum_start(const AverageEntry<Scalar>& entry, std::int64_t group,
                                  std::int64_t row) {
  const std::int64_t dim = entry.dim;
  return entry.packed ? group * (dim * (dim + 1) / 2) + packed_row(row, dim)
                      : group * dim * dim + matrix_row(row, dim);
}

// Without a count 1; a count of 0 is for the caller to see.
template <class Scalar>
__device__ double count_of(const AverageEntry<Scalar>& entry) {
  return entry.count == nullptr ? 1.0 : static_cast<double>(*entry.count);
}

// One block per entry: is all of the diagonal finite?
template <class Scalar>
__global__ void check_kernel(AverageEntries<AverageEntry<Scalar>> entries, double decay) {
  const AverageEntry<Scalar>& entry = entries.entry[blockIdx.x];
  const double count = count_of(entry);
  const auto scale = static_cast<Scalar>(count == 0 ? 0.0 : entry.scale / count);
  int finite = 1;
  for (std::int64_t index = threadIdx.x; index < entry.groups * entry.dim; index += kThreads) {
    const Scalar value = entry.sum[sum_start(entry, index / entry.dim, index % entry.dim)] * scale;
    if (!isfinite(value)) finite = 0;
  }
  finite = __syncthreads_and(finite);
  if (threadIdx.x != 0) return;
  const bool takes = finite != 0 && count != 0;
  *entry.finite = finite != 0 || count == 0;
  *entry.taken = takes ? *entry.weight : 0.0;
  if (takes) *entry.weight = 1 - decay;
}

// One warp per piece of a line.
template <class Scalar>
__global__ void blend_kernel(AverageEntries<AverageEntry<Scalar>> entries,
                             LineBlocks<kAverageEntries> blocks) {
  const int index = blocks.entry();
  const AverageEntry<Scalar>& entry = entries.entry[index];
  const LinePiece piece(blocks.piece(index), entry.dim);
  const double taken = *entry.taken;
  if (piece.group >= entry.groups || taken == 0) return;
  const auto keep = static_cast<Scalar>(1 - taken);
  const auto take = static_cast<Scalar>(taken * (entry.scale / count_of(entry)));
  const LinePlaces from = piece.places([&](int row) { return sum_start(entry, piece.group, row); });
  const LinePlaces to = piece.places(
      [&](int row) { return piece.group * entry.dim * entry.dim + matrix_row(row, entry.dim); });
  Scalar sums[kEach];
  Scalar means[kEach];
  piece.each([&](int which, int at) {
    sums[which] = entry.sum[from[at]];
    means[which] = entry.mean[to[at]];
  });
  piece.each(
      [&](int which, int at) { entry.mean[to[at]] = keep * means[which] + take * sums[which]; });
}

// x per entry, groups along y.
template <class Scalar>
__global__ void diagonal_kernel(AverageEntries<DiagonalEntry<Scalar>> entries) {
  const DiagonalEntry<Scalar>& entry = entries.entry[blockIdx.x];
  const std::int64_t dim = entry.dim;
  for (std::int64_t group = blockIdx.y; group < entry.groups; group += gridDim.y) {
    double total = 0;
    for (std::int64_t index = threadIdx.x; index < dim; index += kThreads) {
      total += static_cast<double>(entry.matrices[(group * dim + index) * dim + index]);
    }
    total = block_sum<kThreads>(total);
    if (threadIdx.x == 0)
      entry.means[group] = static_cast<Scalar>(total / static_cast<double>(dim));
    __syncthreads();
  }
}

}  // namespace

template <class Scalar>
cudaError_t launch_average(const AverageEntry<Scalar>* entries, int count, double decay,
                           cudaStream_t stream) {
  const AverageEntries<AverageEntry<Scalar>> all = copied<kAverageEntries>(entries, count);
  check_kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(all, decay);
  const LineBlocks<kAverageEntries> blocks = line_blocks<kAverageEntries>(entries, count);
  blend_kernel<<<blocks.first[count], dim3(kWarp, kWarps), 0, stream>>>(all, blocks);
  return cudaGetLastError();
}

template <class Scalar>
cudaError_t launch_diagonal_means(const DiagonalEntry<Scalar>* entries, int count,
                                  cudaStream_t stream) {
  std::int64_t groups = 1;
  for (int index = 0; index < count; ++index) groups = std::max(groups, entries[index].groups);
  const auto rows = static_cast<unsigned>(std::min<std::int64_t>(groups, 1024));
  diagonal_kernel<<<dim3(static_cast<unsigned>(count), rows), kThreads, 0, stream>>>(
      copied<kAverageEntries>(entries, count));
  return cudaGetLastError();
}

#define SPDKFAC_INSTANTIATE(Scalar)                                                            \
  template cudaError_t launch_average(const AverageEntry<Scalar>*, int, double, cudaStream_t); \
  template cudaError_t launch_diagonal_means(const DiagonalEntry<Scalar>*, int, cudaStream_t);
SPDKFAC_INSTANTIATE(float)
SPDKFAC_INSTANTIATE(double)
#undef SPDKFAC_INSTANTIATE

}  // namespace spdkfac::kfac
