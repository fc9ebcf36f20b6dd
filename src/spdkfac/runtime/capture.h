// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
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
  // Whether gradients count of any backward pass, also of one that accumulates into no parameter.
  virtual bool wants_every_gradient() const { return false; }
  // After the layer's operator has run; `output` has a gradient function. The result is called with
  // the gradient of that output in each backward pass that accumulates into the layer's weight; it
  // must not assume that the sink lives.
  virtual std::function<void(const at::Tensor& gradient)> on_call(std::size_t layer,
                                                                  const kfac::LayerUse& use,
                                                                  const at::Tensor& input,
                                                                  const at::Tensor& output) = 0;
  // Likewise of an operator with another parameter of the model; of a convolution `use` has a
  // geometry, but not its own.
  virtual void on_other_call(const kfac::LayerUse& /*use*/, const at::Tensor& /*input*/,
                             const at::Tensor& /*output*/) {}
  // A loss over this many examples was computed on the thread of the capture.
  virtual void on_loss(std::int64_t /*batch*/) {}
};

// Shows a sink the calls of tracked layers on this thread, and on those of its backward passes,
// from now until destruction: those with gradients on, in training mode and with a weight that
// requires one. Works on unmodified modules and on functional calls, since it stands between
// callers and torch's operators (kinds/) and knows layers by their weights. Several may exist at
// once.
//
// Calls that only repeat earlier ones in a backward pass, for activations that were not kept, are
// not shown; where the earlier ones had gradients off (reentrant checkpointing), they are.
class Capture {
 public:
  // `others`: further parameters of the model.
  Capture(const std::vector<TrackedLayer>& layers, const std::shared_ptr<CaptureSink>& sink,
          const std::vector<at::Tensor>& others = {});
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  std::weak_ptr<CaptureSink> sink_;
  std::thread::id thread_;
};

}  // namespace spdkfac::runtime
