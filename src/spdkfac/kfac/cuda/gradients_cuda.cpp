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
         const at::Tensor& scale, const at::Tensor& bad) {
  std::vector<GradientEntry<Scalar>> entries;
  const auto add = [&](const std::vector<at::Tensor>& list, bool is_scaled) {
    for (const at::Tensor& one : list) {
      if (one.scalar_type() != c10::CppTypeToScalarType<Scalar>::value) continue;
      SPDKFAC_CHECK(one.is_non_overlapping_and_dense(), "a gradient with gaps");
      entries.push_back({one.mutable_data_ptr<Scalar>(), one.numel(), is_scaled});
    }
  };
  add(scaled, true);
  add(others, false);
  in_parts(entries, kGradientEntries, [&](const GradientEntry<Scalar>* part, int count) {
    return launch_scale_or_clear(part, count, scale.const_data_ptr<double>(),
                                 bad.const_data_ptr<bool>(), c10::cuda::getCurrentCUDAStream());
  });
}

}  // namespace

void scale_or_clear_cuda(const std::vector<at::Tensor>& scaled,
                         const std::vector<at::Tensor>& others, const at::Tensor& scale,
                         const at::Tensor& bad) {
  const c10::cuda::CUDAGuard guard(scale.device());
  run<float>(scaled, others, scale, bad);
  run<double>(scaled, others, scale, bad);
}

}  // namespace spdkfac::kfac
