// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/gradient_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "spdkfac/base/error.h"

namespace spdkfac::runtime {
namespace {

class Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(std::weak_ptr<GradientHooks::Callback> callback, std::size_t parameter)
      : callback_(std::move(callback)), parameter_(parameter) {}

  void operator()(const torch::autograd::Variable&) override {
    if (const auto callback = callback_.lock()) (*callback)(parameter_);
  }
  bool orphaned() const { return callback_.expired(); }

 private:
  std::weak_ptr<GradientHooks::Callback> callback_;
  std::size_t parameter_;
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters, Callback callback)
    : parameters_(parameters), callback_(std::make_shared<Callback>(std::move(callback))) {
  namespace autograd = torch::autograd::impl;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    const auto& present = autograd::post_acc_grad_hooks(parameters_[index]);
    const auto* other = dynamic_cast<const Hook*>(present.get());
    if (present && !(other && other->orphaned())) {
      throw ConfigError(
          "kfac: a parameter already has a gradient hook; only one Preconditioner can send the "
          "gradients of a model");
    }
    autograd::set_post_acc_grad_hooks(parameters_[index], std::make_unique<Hook>(callback_, index));
  }
}

GradientHooks::~GradientHooks() {
  for (const at::Tensor& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
}

}  // namespace spdkfac::runtime
