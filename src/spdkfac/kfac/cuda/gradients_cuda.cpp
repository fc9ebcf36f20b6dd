// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/gradients_cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/gradient_kernels.h"
#include "spdkfac/kfac/cuda/in_parts.h"

namespace spdkfac::kfac {
namespace {

template <class Scalar>
void run(const std::vector<at::Tensor>& scaled, const std::vector<at::Tensor>& others,
         const double* scales, const at::Tensor& bad) {
  std::vector<GradientEntry<Scalar>> entries;
  const auto add = [&](const at::Tensor& one, const double* scale) {
    if (one.scalar_type() != c10::CppTypeToScalarType<Scalar>::value) return;
    SPDKFAC_CHECK(one.is_non_overlapping_and_dense(), "a gradient with gaps");
    entries.push_back({one.mutable_data_ptr<Scalar>(), one.numel(), scale});
  };
  for (std::size_t index = 0; index < scaled.size(); ++index) add(scaled[index], scales + index);
  for (const at::Tensor& one : others) add(one, nullptr);
  in_parts(entries, kGradientEntries, [&](const GradientEntry<Scalar>* part, int count) {
    return launch_scale_or_clear(part, count, bad.const_data_ptr<bool>(),
                                 c10::cuda::getCurrentCUDAStream());
  });
}

}  // namespace

void scale_or_clear_cuda(const std::vector<at::Tensor>& scaled,
                         const std::vector<at::Tensor>& others, const at::Tensor& scales,
                         const at::Tensor& bad) {
  const c10::cuda::CUDAGuard guard(scales.device());
  SPDKFAC_CHECK(scales.is_contiguous() && scales.scalar_type() == at::kDouble &&
                    scales.numel() == static_cast<std::int64_t>(scaled.size()),
                "gradients are scaled by another number of values");
  run<float>(scaled, others, scales.const_data_ptr<double>(), bad);
  run<double>(scaled, others, scales.const_data_ptr<double>(), bad);
}

}  // namespace spdkfac::kfac
