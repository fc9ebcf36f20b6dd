// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/factor.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// Receives what a Capture sees. What it throws reaches the caller of forward or backward.
class CaptureSink {
 public:
  virtual ~CaptureSink() = default;

  // Whether to look at the layer now; asked at each of its calls.
  virtual bool wants(std::size_t layer) = 0;
  // After the layer's operator has run; `output` has a gradient function. The result is called with
  // the gradient of that output when autograd has it, once; it must not assume that the sink lives.
  virtual std::function<void(const at::Tensor& gradient)> on_call(std::size_t layer,
                                                                  const kfac::LayerUse& use,
                                                                  const at::Tensor& input,
                                                                  const at::Tensor& output) = 0;
};

// Shows a sink the calls of tracked layers on this thread, from now until destruction: those with
// gradients on, in training mode and with a weight that requires one. Works on unmodified modules
// and on functional calls, since it stands between callers and torch's operators (conv2d, linear,
// addmm, mm, matmul) and knows layers by their weights. Several may exist at once.
class Capture {
 public:
  Capture(const std::vector<TrackedLayer>& layers, const std::shared_ptr<CaptureSink>& sink);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  std::vector<const void*> weights_;
  std::weak_ptr<CaptureSink> sink_;
};

}  // namespace spdkfac::runtime
