// SPDX-License-Identifier: Apache-2.0
// The losses that a capture sees.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "spdkfac/runtime/capture_registry.h"

namespace spdkfac::runtime {
namespace {

void observe_loss(const at::Tensor& scores, bool batched) {
  if (!c10::GradMode::is_enabled() || !scores.requires_grad()) return;
  const std::int64_t batch = batched && scores.dim() > 0 ? scores.size(0) : 1;
  for (const auto& sink : listeners_of_this_thread()) sink->on_loss(batch);
}

at::Tensor cross_entropy_loss(const at::Tensor& self, const at::Tensor& target,
                              const std::optional<at::Tensor>& weight, std::int64_t reduction,
                              c10::SymInt ignore_index, double label_smoothing) {
  observe_loss(self, self.dim() > 1);
  const CaptureOff off;
  return at::cross_entropy_loss_symint(self, target, weight, reduction, ignore_index,
                                       label_smoothing);
}

at::Tensor nll_loss_nd(const at::Tensor& self, const at::Tensor& target,
                       const std::optional<at::Tensor>& weight, std::int64_t reduction,
                       c10::SymInt ignore_index) {
  observe_loss(self, self.dim() > 1);
  const CaptureOff off;
  return at::nll_loss_nd_symint(self, target, weight, reduction, ignore_index);
}

at::Tensor nll_loss(const at::Tensor& self, const at::Tensor& target,
                    const std::optional<at::Tensor>& weight, std::int64_t reduction,
                    c10::SymInt ignore_index) {
  observe_loss(self, self.dim() > 1);
  const CaptureOff off;
  return at::nll_loss_symint(self, target, weight, reduction, ignore_index);
}

at::Tensor binary_cross_entropy(const at::Tensor& self, const at::Tensor& target,
                                const std::optional<at::Tensor>& weight, std::int64_t reduction) {
  observe_loss(self, true);
  const CaptureOff off;
  return at::binary_cross_entropy(self, target, weight, reduction);
}

at::Tensor binary_cross_entropy_with_logits(const at::Tensor& self, const at::Tensor& target,
                                            const std::optional<at::Tensor>& weight,
                                            const std::optional<at::Tensor>& pos_weight,
                                            std::int64_t reduction) {
  observe_loss(self, true);
  const CaptureOff off;
  return at::binary_cross_entropy_with_logits(self, target, weight, pos_weight, reduction);
}

at::Tensor mse_loss(const at::Tensor& self, const at::Tensor& target, std::int64_t reduction) {
  observe_loss(self, true);
  const CaptureOff off;
  return at::mse_loss(self, target, reduction);
}

}  // namespace

void install_losses(torch::Library& operators) {
  operators.impl("cross_entropy_loss", cross_entropy_loss);
  operators.impl("nll_loss_nd", nll_loss_nd);
  operators.impl("nll_loss", nll_loss);
  operators.impl("binary_cross_entropy", binary_cross_entropy);
  operators.impl("binary_cross_entropy_with_logits", binary_cross_entropy_with_logits);
  operators.impl("mse_loss", mse_loss);
}

}  // namespace spdkfac::runtime
