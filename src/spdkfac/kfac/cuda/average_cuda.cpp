// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/average_cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/average_kernels.h"
#include "spdkfac/kfac/cuda/in_parts.h"

namespace spdkfac::kfac {
at::Tensor average_cuda(const std::vector<CudaAverage>& all, double decay) {
  SPDKFAC_CHECK(!all.empty(), "no factors to average");
  const at::Tensor& first = all.front().mean;
  const c10::cuda::CUDAGuard guard(first.device());
  const auto count = static_cast<std::int64_t>(all.size());
  const at::Tensor finite = at::empty({count}, first.options().dtype(at::kBool));
  const at::Tensor taken = at::empty({count}, first.options().dtype(at::kDouble));
  AT_DISPATCH_FLOATING_TYPES(first.scalar_type(), "average_cuda", [&] {
    std::vector<AverageEntry<scalar_t>> entries;
    for (const CudaAverage& one : all) {
      SPDKFAC_CHECK(one.sum.is_contiguous() && one.mean.is_contiguous() &&
                        one.sum.scalar_type() == first.scalar_type() &&
                        one.mean.scalar_type() == first.scalar_type() &&
                        (!one.count.defined() || one.count.scalar_type() == first.scalar_type()),
                    "a factor's sum is in pieces, or of another type than its average");
      const auto index = static_cast<std::int64_t>(entries.size());
      entries.push_back(
          {.sum = one.sum.const_data_ptr<scalar_t>(),
           .mean = one.mean.mutable_data_ptr<scalar_t>(),
           .weight = one.weight.mutable_data_ptr<double>(),
           .taken = taken.mutable_data_ptr<double>() + index,
           .finite = finite.mutable_data_ptr<bool>() + index,
           .count = one.count.defined() ? one.count.const_data_ptr<scalar_t>() : nullptr,
           .scale = one.scale,
           .groups = one.mean.size(0),
           .dim = static_cast<std::int32_t>(one.mean.size(-1)),
           .packed = one.packed});
    }
    in_parts(entries, kAverageEntries, [&](const auto* part, int size) {
      return launch_average(part, size, decay, c10::cuda::getCurrentCUDAStream());
    });
  });
  return finite;
}

at::Tensor diagonal_means_cuda(const std::vector<at::Tensor>& matrices) {
  SPDKFAC_CHECK(!matrices.empty(), "no diagonals");
  const at::Tensor& first = matrices.front();
  const c10::cuda::CUDAGuard guard(first.device());
  std::int64_t count = 0;
  for (const at::Tensor& one : matrices) count += one.size(0);
  const at::Tensor means = at::empty({count}, first.options());
  AT_DISPATCH_FLOATING_TYPES(first.scalar_type(), "diagonal_means_cuda", [&] {
    std::vector<DiagonalEntry<scalar_t>> entries;
    scalar_t* to = means.mutable_data_ptr<scalar_t>();
    for (const at::Tensor& one : matrices) {
      SPDKFAC_CHECK(one.is_contiguous() && one.scalar_type() == first.scalar_type(),
                    "matrices differ in type, or lie in pieces");
      entries.push_back({.matrices = one.const_data_ptr<scalar_t>(),
                         .means = to,
                         .groups = one.size(0),
                         .dim = static_cast<std::int32_t>(one.size(-1))});
      to += one.size(0);
    }
    in_parts(entries, kAverageEntries, [&](const auto* part, int size) {
      return launch_diagonal_means(part, size, c10::cuda::getCurrentCUDAStream());
    });
  });
  return means;
}

}  // namespace spdkfac::kfac
