// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/optimizer_state.h"

#include <memory>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "spdkfac/base/error.h"

namespace spdkfac::train {
namespace {

using torch::optim::AdamParamState;
using torch::optim::AdamWParamState;
using torch::optim::OptimizerParamState;
using torch::optim::SGDParamState;

template <class Optimizer>
bool is(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const Optimizer*>(&optimizer) != nullptr;
}

// The keys of a parameter's state.
std::vector<std::string> keys_of(const torch::optim::Optimizer& optimizer) {
  if (is<torch::optim::SGD>(optimizer)) return {"momentum_buffer"};
  return {"exp_avg", "exp_avg_sq", "step"};
}

// Its values, in the order of its keys.
template <class State>
std::vector<at::Tensor> adam_values(const OptimizerParamState& any) {
  const auto& state = static_cast<const State&>(any);
  return {state.exp_avg(), state.exp_avg_sq(), at::full({}, state.step(), at::kLong)};
}

std::vector<at::Tensor> values_of(const torch::optim::Optimizer& optimizer,
                                  const OptimizerParamState& state) {
  if (is<torch::optim::SGD>(optimizer)) {
    return {static_cast<const SGDParamState&>(state).momentum_buffer()};
  }
  return is<torch::optim::Adam>(optimizer) ? adam_values<AdamParamState>(state)
                                           : adam_values<AdamWParamState>(state);
}

template <class State>
std::unique_ptr<OptimizerParamState> adam_state(const std::vector<at::Tensor>& values) {
  auto state = std::make_unique<State>();
  state->exp_avg(values[0]);
  state->exp_avg_sq(values[1]);
  state->step(values[2].item<std::int64_t>());
  return state;
}

std::unique_ptr<OptimizerParamState> param_state(const torch::optim::Optimizer& optimizer,
                                                 std::vector<at::Tensor> values,
                                                 at::Device device) {
  // Copies: the optimizer changes them in place.
  for (at::Tensor& value : values) value = value.to(device).clone();
  if (is<torch::optim::SGD>(optimizer)) {
    auto state = std::make_unique<SGDParamState>();
    state->momentum_buffer(values[0]);
    return state;
  }
  return is<torch::optim::Adam>(optimizer) ? adam_state<AdamParamState>(values)
                                           : adam_state<AdamWParamState>(values);
}

// The optimizer of each parameter.
std::map<void*, torch::optim::Optimizer*> by_parameter(const Optimizers& optimizers) {
  std::map<void*, torch::optim::Optimizer*> result;
  for (torch::optim::Optimizer* optimizer : optimizers) {
    for (const auto& group : optimizer->param_groups()) {
      for (const at::Tensor& one : group.params()) result[one.unsafeGetTensorImpl()] = optimizer;
    }
  }
  return result;
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

NamedTensors optimizer_tensors(const Optimizers& optimizers, const NamedTensors& parameters) {
  NamedTensors tensors;
  const auto owners = by_parameter(optimizers);
  for (const auto& [name, parameter] : parameters) {
    const torch::optim::Optimizer& optimizer = *owners.at(parameter.unsafeGetTensorImpl());
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    const std::vector<std::string> keys = keys_of(optimizer);
    const std::vector<at::Tensor> values = values_of(optimizer, *found->second);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (values[i].defined()) tensors.emplace_back(name + "." + keys[i], values[i]);
    }
  }
  return tensors;
}

OptimizerStates optimizer_states(const std::map<std::string, at::Tensor>& tensors,
                                 const std::string& where, const NamedTensors& parameters,
                                 const Optimizers& optimizers) {
  std::size_t used = 0;
  OptimizerStates states;
  const auto owners = by_parameter(optimizers);
  for (const auto& [name, parameter] : parameters) {
    torch::optim::Optimizer* optimizer = owners.at(parameter.unsafeGetTensorImpl());
    const std::vector<std::string> keys = keys_of(*optimizer);
    std::vector<at::Tensor> values;
    for (const std::string& key : keys) {
      const auto found = tensors.find(name + "." + key);
      if (found == tensors.end()) continue;
      check_value(found->first, found->second, parameter, where);
      values.push_back(found->second);
    }
    used += values.size();
    if (values.empty()) continue;
    if (values.size() != keys.size()) {
      throw ConfigError(
          fmt::format("{}: the optimizer's state of {} is incomplete; use a file of "
                      "the same options",
                      where, name));
    }
    states.push_back({optimizer, parameter.unsafeGetTensorImpl(),
                      param_state(*optimizer, values, parameter.device())});
  }
  if (used != tensors.size()) {
    throw ConfigError(
        fmt::format("{}: has {} tensors of the optimizer that are unknown; use a file "
                    "of the same model and options",
                    where, tensors.size() - used));
  }
  return states;
}

void put_states(OptimizerStates states, const Optimizers& optimizers) {
  for (torch::optim::Optimizer* optimizer : optimizers) optimizer->state().clear();
  for (LoadedState& one : states) {
    one.optimizer->state()[one.parameter] = std::move(one.state);
  }
}

}  // namespace spdkfac::train
