// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::runtime {

// Tells when autograd has finished the gradient of a parameter in a backward pass, on the thread of
// that pass, until destruction, which removes the hooks. What the callback throws reaches the
// caller of backward(). A parameter may be listed several times, but have one owner at a time.
class GradientHooks {
 public:
  using Callback = std::function<void(std::size_t parameter)>;

  GradientHooks(const std::vector<at::Tensor>& parameters, Callback callback);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<Callback> callback_;
};

}  // namespace spdkfac::runtime
