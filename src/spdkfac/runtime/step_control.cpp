// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_control.h"

#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
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

void StepControl::require_recordable() const {
  const KfacOptions& options = kfac_.options();
  if (options.trace) {
    throw ConfigError(
        "kfac: steps that run as CUDA graphs cannot be traced; switch options.trace off");
  }
  if (kfac_.ranks() > 1) {
    throw ConfigError(
        fmt::format("kfac: steps of {} ranks cannot run as CUDA graphs; run them without, or "
                    "train on one rank",
                    kfac_.ranks()));
  }
  if (options.interval == Refresh::kAdaptive) {
    throw ConfigError(
        "kfac: steps that run as CUDA graphs cannot have adaptive intervals, which the host "
        "decides on; choose interval auto or fixed");
  }
  if (keeps_basis(options.solver)) {
    throw ConfigError(fmt::format(
        "kfac: steps that run as CUDA graphs cannot have solver={}, whose eigenvectors the host "
        "asks for; choose solver inverse",
        solver_names()[static_cast<std::size_t>(options.solver)]));
  }
  if (options.spread_refreshes) {
    throw ConfigError(
        "kfac: steps that run as CUDA graphs cannot have spread refreshes (spread_refreshes), "
        "whose steps all differ; switch it off");
  }
  if (options.lm_damping) {
    throw ConfigError(
        "kfac: steps that run as CUDA graphs cannot have lm_damping, whose damping changes; "
        "switch it off");
  }
}

int StepControl::variant() { return kfac_.impl_->variant(); }

void StepControl::count_replayed_step(int variant) { kfac_.impl_->count_replayed_step(variant); }

void StepControl::set_rate(at::Tensor rate) { kfac_.impl_->set_rate(std::move(rate)); }

void StepControl::load_failed() { kfac_.impl_->load_failed(); }

}  // namespace spdkfac
