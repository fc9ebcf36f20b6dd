// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_control.h"

#include <utility>

#include "spdkfac/runtime/preconditioner_impl.h"

namespace spdkfac {

void StepControl::set_loss_scale(std::function<at::Tensor()> scale) {
  kfac_.impl_->set_loss_scale(std::move(scale));
}

void StepControl::gradients_zeroed() { kfac_.impl_->gradients_zeroed(); }

bool StepControl::judges_damping() const { return kfac_.impl_->judges_damping(); }

void StepControl::judge_damping(double loss_before, double loss_after) {
  kfac_.impl_->judge_damping(loss_before, loss_after);
}

std::vector<std::size_t> StepControl::unseen_layers() const { return kfac_.impl_->unseen_layers(); }

bool StepControl::wants_calls() const { return kfac_.impl_->wants_calls(); }

void StepControl::load_failed() { kfac_.impl_->load_failed(); }

}  // namespace spdkfac
