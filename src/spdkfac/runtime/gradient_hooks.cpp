// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/gradient_hooks.h"

#include <unordered_map>
#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "spdkfac/base/error.h"

namespace spdkfac::runtime {
namespace {

class Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(std::weak_ptr<GradientHooks::Callback> callback, std::vector<std::size_t> places)
      : callback_(std::move(callback)), places_(std::move(places)) {}

  void operator()(const torch::autograd::Variable&) override {
    const auto callback = callback_.lock();
    for (std::size_t i = 0; callback && i < places_.size(); ++i) (*callback)(places_[i]);
  }
  bool orphaned() const { return callback_.expired(); }

 private:
  std::weak_ptr<GradientHooks::Callback> callback_;
  std::vector<std::size_t> places_;  // in the list of parameters
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters, Callback callback)
    : callback_(std::make_shared<Callback>(std::move(callback))) {
  namespace autograd = torch::autograd::impl;
  std::unordered_map<const void*, std::vector<std::size_t>> places;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    std::vector<std::size_t>& own = places[parameters[index].unsafeGetTensorImpl()];
    if (own.empty()) parameters_.push_back(parameters[index]);
    own.push_back(index);
  }
  for (const at::Tensor& parameter : parameters_) {
    const auto& present = autograd::post_acc_grad_hooks(parameter);
    const auto* other = dynamic_cast<const Hook*>(present.get());
    if (present && !(other && other->orphaned())) {
      throw ConfigError(
          "kfac: a parameter already has a gradient hook; only one Preconditioner can send the "
          "gradients of a model");
    }
    autograd::set_post_acc_grad_hooks(
        parameter,
        std::make_unique<Hook>(callback_, std::move(places[parameter.unsafeGetTensorImpl()])));
  }
}

GradientHooks::~GradientHooks() {
  for (const at::Tensor& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
}

}  // namespace spdkfac::runtime
