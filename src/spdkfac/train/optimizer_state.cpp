// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/optimizer_state.h"

#include <memory>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "spdkfac/base/error.h"

namespace spdkfac::train {
namespace {

using torch::optim::AdamParamState;
using torch::optim::OptimizerParamState;
using torch::optim::SGDParamState;

bool is_adam(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr;
}

// The keys of a parameter's state.
std::vector<std::string> keys_of(bool adam) {
  if (adam) return {"exp_avg", "exp_avg_sq", "step"};
  return {"momentum_buffer"};
}

std::unique_ptr<OptimizerParamState> param_state(bool adam, const std::vector<at::Tensor>& values,
                                                 at::Device device) {
  // A copy: the optimizer changes it in place.
  const auto own = [&](const at::Tensor& value) { return value.to(device).clone(); };
  if (!adam) {
    auto state = std::make_unique<SGDParamState>();
    state->momentum_buffer(own(values[0]));
    return state;
  }
  auto state = std::make_unique<AdamParamState>();
  state->exp_avg(own(values[0]));
  state->exp_avg_sq(own(values[1]));
  state->step(values[2].item<std::int64_t>());
  return state;
}

void check_value(const std::string& name, const at::Tensor& value, const at::Tensor& parameter,
                 const std::string& where) {
  const bool step = name.ends_with(".step");
  const bool fits =
      step ? value.dim() == 0 && value.scalar_type() == at::kLong
           : value.sizes() == parameter.sizes() && value.scalar_type() == parameter.scalar_type();
  if (!fits || (step && value.item<std::int64_t>() < 0)) {
    throw ConfigError(fmt::format("{}: {} does not fit its parameter; use a file of the same model",
                                  where, name));
  }
}

}  // namespace

NamedTensors optimizer_tensors(const torch::optim::Optimizer& optimizer,
                               const NamedTensors& parameters) {
  NamedTensors tensors;
  for (const auto& [name, parameter] : parameters) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    const auto add = [&, &prefix = name](const char* key, const at::Tensor& value) {
      if (value.defined()) tensors.emplace_back(prefix + "." + key, value);
    };
    if (is_adam(optimizer)) {
      const auto& state = static_cast<const AdamParamState&>(*found->second);
      add("exp_avg", state.exp_avg());
      add("exp_avg_sq", state.exp_avg_sq());
      add("step", at::full({}, state.step(), at::kLong));
    } else {
      add("momentum_buffer", static_cast<const SGDParamState&>(*found->second).momentum_buffer());
    }
  }
  return tensors;
}

OptimizerStates optimizer_states(const std::map<std::string, at::Tensor>& tensors,
                                 const std::string& where, const NamedTensors& parameters,
                                 const torch::optim::Optimizer& optimizer) {
  const bool adam = is_adam(optimizer);
  std::size_t used = 0;
  OptimizerStates states;
  for (const auto& [name, parameter] : parameters) {
    std::vector<at::Tensor> values;
    for (const std::string& key : keys_of(adam)) {
      const auto found = tensors.find(name + "." + key);
      if (found == tensors.end()) continue;
      check_value(found->first, found->second, parameter, where);
      values.push_back(found->second);
    }
    used += values.size();
    if (values.empty()) continue;
    if (values.size() != keys_of(adam).size()) {
      throw ConfigError(
          fmt::format("{}: the optimizer's state of {} is incomplete; use a file of "
                      "the same options",
                      where, name));
    }
    states.emplace_back(parameter.unsafeGetTensorImpl(),
                        param_state(adam, values, parameter.device()));
  }
  if (used != tensors.size()) {
    throw ConfigError(
        fmt::format("{}: has {} tensors of the optimizer that are unknown; use a file "
                    "of the same model and options",
                    where, tensors.size() - used));
  }
  return states;
}

void put_states(OptimizerStates states, torch::optim::Optimizer& optimizer) {
  optimizer.state().clear();
  for (auto& [parameter, state] : states) optimizer.state()[parameter] = std::move(state);
}

}  // namespace spdkfac::train
