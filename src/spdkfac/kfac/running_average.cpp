// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/running_average.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <c10/core/GradMode.h>

#include "spdkfac/base/check.h"

namespace spdkfac {
namespace {

// mean = keep·mean + take·sum on the upper triangles, in one pass.
template <class Scalar>
void blend(const at::Tensor& mean, const at::Tensor& sum, Scalar keep, Scalar take) {
  const std::int64_t dim = mean.size(-1);
  Scalar* to = mean.mutable_data_ptr<Scalar>();
  const Scalar* from = sum.const_data_ptr<Scalar>();
  for (std::int64_t row = 0; row < mean.size(0) * dim; ++row) {
    for (std::int64_t at = row * dim + row % dim; at < (row + 1) * dim; ++at) {
      to[at] = keep * to[at] + take * from[at];
    }
  }
}

}  // namespace

RunningAverage::RunningAverage(std::int64_t groups, std::int64_t dim, double decay, bool identity,
                               const at::TensorOptions& options)
    : decay_(decay),
      mean_(at::eye(dim, options).expand({groups, dim, dim}).contiguous()),
      weight_(at::full({}, identity ? 1 - decay : 1.0, options.dtype(at::kDouble))) {}

at::Tensor RunningAverage::add(const at::Tensor& sum, double scale) {
  SPDKFAC_CHECK(sum.sizes() == mean_.sizes(), "a factor's shape differs from that of its average");
  const c10::NoGradGuard no_grad;
  const at::Tensor finite = (sum.diagonal(0, 1, 2) * scale).isfinite().all();
  if (mean_.is_cpu()) {
    if (finite.item<bool>()) {
      const double weight = weight_.item<double>();
      SPDKFAC_CHECK(sum.is_contiguous() && sum.scalar_type() == mean_.scalar_type(),
                    "a factor's sum is in pieces or of another type than its average");
      AT_DISPATCH_FLOATING_TYPES(mean_.scalar_type(), "blend", [&] {
        blend<scalar_t>(mean_, sum, static_cast<scalar_t>(1 - weight),
                        static_cast<scalar_t>(weight * scale));
      });
      weight_.fill_(1 - decay_);
    }
  } else {
    const at::Tensor weight = weight_.to(mean_.scalar_type());
    mean_.copy_(at::where(finite, at::lerp(mean_, sum * scale, weight), mean_));
    weight_.copy_(at::where(finite, 1 - decay_, weight_));
  }
  return finite;
}

void RunningAverage::restore(const at::Tensor& mean, const at::Tensor& weight) {
  SPDKFAC_CHECK(mean.sizes() == mean_.sizes() && weight.dim() == 0,
                "a running average is restored with other shapes");
  mean_.copy_(mean);
  weight_.copy_(weight);
}

}  // namespace spdkfac
