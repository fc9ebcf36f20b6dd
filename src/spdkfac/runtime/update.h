// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>

#include <torch/optim/optimizer.h>

#include "spdkfac/runtime/preconditioner.h"

namespace spdkfac {

// Lets the optimizer step after kfac.step(). Use it instead of optimizer.step() with graft=adam or
// solver=adam over Adam or AdamW: gradients of K-FAC's layers then have the length of a step
// already, which these optimizers would divide away. They are applied as they are, with the rate
// and, decoupled, the weight decay of their groups. In all other cases this is optimizer.step().
void update_parameters(torch::optim::Optimizer& optimizer, const Preconditioner& kfac);

// The parameters (at::TensorImpl) to which update_parameters applies gradients as they are.
std::set<const void*> directly_updated(const torch::optim::Optimizer& optimizer,
                                       const Preconditioner& kfac);

// The numbers of Adam or AdamW; nothing for other optimizers.
std::optional<AdamOptions> adam_options_of(const torch::optim::Optimizer& optimizer);

// The preset for this optimizer, whose rate and schedule then apply: updates have the length of
// Adam's steps over Adam or AdamW, with its numbers, and that of the gradient over others.
KfacOptions kfac_preset(const std::string& name, const torch::optim::Optimizer& optimizer);

}  // namespace spdkfac
