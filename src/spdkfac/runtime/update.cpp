// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/update.h"

#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "spdkfac/runtime/presets.h"

namespace spdkfac {
namespace {

using Group = torch::optim::OptimizerParamGroup;

template <class Options>
AdamOptions adam_numbers(const Group& group) {
  const auto& options = static_cast<const Options&>(group.options());
  const auto [beta1, beta2] = options.betas();
  return {beta1, beta2, options.eps()};
}

// Rate and weight decay of a group of Adam or AdamW.
std::pair<double, double> rate_and_decay(const torch::optim::Optimizer& optimizer,
                                         const Group& group) {
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr) {
    const auto& options = static_cast<const torch::optim::AdamOptions&>(group.options());
    return {options.lr(), options.weight_decay()};
  }
  const auto& options = static_cast<const torch::optim::AdamWOptions&>(group.options());
  return {options.lr(), options.weight_decay()};
}

// Hides gradients from an optimizer while it lives.
class HiddenGradients {
 public:
  HiddenGradients() = default;
  HiddenGradients(const HiddenGradients&) = delete;
  HiddenGradients& operator=(const HiddenGradients&) = delete;
  ~HiddenGradients() {
    for (auto& [parameter, gradient] : hidden_) parameter.mutable_grad() = gradient;
  }
  void hide(const at::Tensor& parameter) {
    hidden_.emplace_back(parameter, parameter.grad());
    parameter.mutable_grad().reset();
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> hidden_;
};

}  // namespace

std::optional<AdamOptions> adam_options_of(const torch::optim::Optimizer& optimizer) {
  const std::vector<Group>& groups = optimizer.param_groups();
  if (groups.empty()) return std::nullopt;
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr) {
    return adam_numbers<torch::optim::AdamOptions>(groups.front());
  }
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr) {
    return adam_numbers<torch::optim::AdamWOptions>(groups.front());
  }
  return std::nullopt;
}

KfacOptions kfac_preset(const std::string& name, const torch::optim::Optimizer& optimizer) {
  KfacOptions options = kfac_preset(name);
  const std::optional<AdamOptions> adam = adam_options_of(optimizer);
  if (adam) options.graft_adam = *adam;
  if (!adam && options.graft == Graft::kAdam) set_graft(options, Graft::kSgd);
  return options;
}

std::set<const void*> directly_updated(const torch::optim::Optimizer& optimizer,
                                       const Preconditioner& kfac) {
  const KfacOptions& options = kfac.options();
  const bool as_adam = options.graft == Graft::kAdam || options.solver == Solver::kAdam;
  std::set<const void*> covered;
  if (!as_adam || !adam_options_of(optimizer)) return covered;
  for (const TrackedLayer& layer : kfac.layers()) {
    for (const ParameterPart& own : own_parameters(layer)) {
      covered.insert(own.parameter.unsafeGetTensorImpl());
    }
  }
  return covered;
}

void update_parameters(torch::optim::Optimizer& optimizer, const Preconditioner& kfac) {
  HiddenGradients hidden;
  const std::set<const void*> covered = directly_updated(optimizer, kfac);
  if (!covered.empty()) {
    const c10::NoGradGuard no_grad;
    for (const Group& group : optimizer.param_groups()) {
      const auto [rate, decay] = rate_and_decay(optimizer, group);
      for (at::Tensor parameter : group.params()) {
        if (!covered.contains(parameter.unsafeGetTensorImpl())) continue;
        if (!parameter.grad().defined()) continue;
        if (decay != 0) parameter.mul_(1 - rate * decay);
        parameter.add_(parameter.grad(), -rate);
        hidden.hide(parameter);
      }
    }
  }
  optimizer.step();
}

}  // namespace spdkfac
