// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/clipping.h"

#include <limits>

#include <ATen/ATen.h>

#include "spdkfac/kfac/precondition.h"

namespace spdkfac::runtime {
namespace {

// Gradients that exist.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

}  // namespace

at::Tensor clip_gradients(const at::Tensor& inner, double kl_clip, double learning_rate,
                          const std::vector<at::Tensor>& covered,
                          const std::vector<at::Tensor>& others) {
  std::vector<at::Tensor> scaled = gradients_of(covered);
  std::vector<at::Tensor> kept = gradients_of(others);
  at::Tensor bad = inner.isfinite().logical_not();
  if (!kept.empty()) {
    const at::Tensor largest =
        at::stack(at::_foreach_norm(kept, std::numeric_limits<double>::infinity()));
    bad = bad.logical_or(largest.isfinite().all().logical_not());
  }
  kfac::scale_or_clear(scaled, kept, kfac::kl_clip_scale(inner, kl_clip, learning_rate), bad);
  return bad;
}

}  // namespace spdkfac::runtime
