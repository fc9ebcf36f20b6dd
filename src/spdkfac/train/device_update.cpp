// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/device_update.h"

#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

namespace spdkfac::train {
namespace {

using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::SGD;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

}  // namespace

struct DeviceUpdate::Parts {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> first;   // moments: SGD's buffer, Adam's mean
  std::vector<at::Tensor> second;  // of Adam
  std::vector<at::Tensor> counters;

  void add(const at::Tensor& parameter, at::Tensor moment) {
    parameters.push_back(parameter);
    gradients.push_back(parameter.grad());
    if (moment.defined()) first.push_back(std::move(moment));
  }
};

DeviceUpdate::DeviceUpdate(torch::optim::Optimizer& optimizer, std::set<const void*> direct,
                           at::Device device)
    : optimizer_(optimizer),
      direct_(std::move(direct)),
      rate_(at::zeros({}, at::TensorOptions(at::kFloat).device(device))) {}

void DeviceUpdate::set_rate(double rate) {
  if (rate == rate_on_device_) return;
  rate_.fill_(rate);
  rate_on_device_ = rate;
}

void DeviceUpdate::step() {
  const c10::NoGradGuard no_grad;
  stepped_.clear();
  for (const Group& group : optimizer_.param_groups()) {
    std::vector<at::Tensor> direct;
    std::vector<at::Tensor> own;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      (direct_.contains(parameter.unsafeGetTensorImpl()) ? direct : own).push_back(parameter);
    }
    if (dynamic_cast<SGD*>(&optimizer_) != nullptr) {
      step_sgd(own, group);
    } else if (dynamic_cast<Adam*>(&optimizer_) != nullptr) {
      apply_directly(direct, static_cast<const AdamOptions&>(group.options()).weight_decay());
      step_adam(own, group);
    } else {
      apply_directly(direct, static_cast<const AdamWOptions&>(group.options()).weight_decay());
      step_adamw(own, group);
    }
  }
}

void DeviceUpdate::count_replayed() {
  for (void* parameter : stepped_) {
    torch::optim::OptimizerParamState& state = *optimizer_.state().at(parameter);
    if (dynamic_cast<Adam*>(&optimizer_) != nullptr) {
      auto& adam = static_cast<AdamParamState&>(state);
      adam.step(adam.step() + 1);
    } else {
      auto& adam = static_cast<AdamWParamState&>(state);
      adam.step(adam.step() + 1);
    }
  }
}

// As update_parameters() does.
void DeviceUpdate::apply_directly(const std::vector<at::Tensor>& parameters, double decay) {
  if (parameters.empty()) return;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  if (decay != 0) at::_foreach_mul_(parameters, 1 - rate_ * decay);
  at::_foreach_sub_(parameters, at::_foreach_mul(gradients, rate_));
}

void DeviceUpdate::step_sgd(const std::vector<at::Tensor>& parameters, const Group& group) {
  const auto& options = static_cast<const SGDOptions&>(group.options());
  Parts begun;
  Parts fresh;  // parameters without a buffer: their first gradient becomes it
  for (const at::Tensor& parameter : parameters) {
    if (options.momentum() == 0) {
      begun.add(parameter, {});
      continue;
    }
    auto& state = optimizer_.state()[parameter.unsafeGetTensorImpl()];
    if (!state) state = std::make_unique<SGDParamState>();
    auto& own = static_cast<SGDParamState&>(*state);
    const bool first = !own.momentum_buffer().defined();
    if (first) own.momentum_buffer(at::empty_like(parameter.grad()));
    (first ? fresh : begun).add(parameter, own.momentum_buffer());
  }
  for (const auto& [parts, is_first] : {std::pair(&begun, false), std::pair(&fresh, true)}) {
    if (parts->parameters.empty()) continue;
    at::_fused_sgd_(parts->parameters, parts->gradients, parts->first, options.weight_decay(),
                    options.momentum(), rate_, options.dampening(), options.nesterov(),
                    /*maximize=*/false, is_first);
  }
}

// Counts the step on the host and on the device.
template <class State>
DeviceUpdate::Parts DeviceUpdate::adam_parts(const std::vector<at::Tensor>& parameters) {
  Parts parts;
  for (const at::Tensor& parameter : parameters) {
    void* key = parameter.unsafeGetTensorImpl();
    auto& state = optimizer_.state()[key];
    if (!state) {
      auto made = std::make_unique<State>();
      made->step(0);
      made->exp_avg(at::zeros_like(parameter));
      made->exp_avg_sq(at::zeros_like(parameter));
      state = std::move(made);
    }
    auto& own = static_cast<State&>(*state);
    at::Tensor& counter = counters_[key];
    if (!counter.defined()) counter = at::full({}, own.step(), rate_.options());
    own.step(own.step() + 1);
    stepped_.push_back(key);
    parts.add(parameter, own.exp_avg());
    parts.second.push_back(own.exp_avg_sq());
    parts.counters.push_back(counter);
  }
  if (!parts.counters.empty()) at::_foreach_add_(parts.counters, 1);
  return parts;
}

void DeviceUpdate::step_adam(const std::vector<at::Tensor>& parameters, const Group& group) {
  const auto& options = static_cast<const AdamOptions&>(group.options());
  const Parts parts = adam_parts<AdamParamState>(parameters);
  if (parts.parameters.empty()) return;
  const auto [beta1, beta2] = options.betas();
  at::_fused_adam_(parts.parameters, parts.gradients, parts.first, parts.second, {}, parts.counters,
                   rate_, beta1, beta2, options.weight_decay(), options.eps(), /*amsgrad=*/false,
                   /*maximize=*/false);
}

void DeviceUpdate::step_adamw(const std::vector<at::Tensor>& parameters, const Group& group) {
  const auto& options = static_cast<const AdamWOptions&>(group.options());
  const Parts parts = adam_parts<AdamWParamState>(parameters);
  if (parts.parameters.empty()) return;
  const auto [beta1, beta2] = options.betas();
  at::_fused_adamw_(parts.parameters, parts.gradients, parts.first, parts.second, {},
                    parts.counters, rate_, beta1, beta2, options.weight_decay(), options.eps(),
                    /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace spdkfac::train
