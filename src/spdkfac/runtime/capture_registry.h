// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/FunctionRef.h>
#include <torch/library.h>

#include "spdkfac/kfac/unit_rows.h"
#include "spdkfac/runtime/capture.h"

namespace spdkfac::runtime {

// A mode key above autograd and autocast that torch itself leaves without a fallback. Operators
// that are registered for it run on threads that have it switched on: those that made a capture,
// and autograd's while they work for these.
constexpr auto kCaptureKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// While it lives, operators are not looked at: for one that calls the real one.
class CaptureOff {
 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{kCaptureKey};
};

// Who watches what, in this process.
void watch(const TrackedLayer& layer, std::size_t index, const std::weak_ptr<CaptureSink>& sink);
void watch_other(const at::Tensor& parameter, const std::function<bool()>& training,
                 const std::weak_ptr<CaptureSink>& sink);
void listen(const std::weak_ptr<CaptureSink>& sink);  // for losses on this thread
void forget(const std::weak_ptr<CaptureSink>& sink);
std::vector<std::shared_ptr<CaptureSink>> listeners_of_this_thread();

// Whether anybody watches the tensor, or the parameter that it is a view of.
bool is_watched(const at::Tensor& tensor);

// What an operator did with a weight: a parameter, or a view of one.
struct OperatorCall {
  const at::Tensor& input;
  const at::Tensor& weight;
  const at::Tensor& output;
  bool convolution = false;
  bool of_others = true;  // whether a parameter of no layer may be used like this
};

// What such a call is for a layer.
struct LayerCall {
  at::Tensor input;
  std::optional<kfac::ConvCall> conv = std::nullopt;
  std::optional<std::int64_t> padding = std::nullopt;  // of a table; below 0: none
  std::optional<kfac::NormCall> norm = std::nullopt;
  OutputRange outputs = {};  // of the operator's output, the layer's
};

// Shows the call to all who watch the weight; `match` says what it is for a layer, if anything.
void observe(const OperatorCall& call,
             c10::function_ref<std::optional<LayerCall>(const TrackedLayer&)> match);

// Losses, whose first dimension is that of the examples.
void install_losses(torch::Library& operators);

}  // namespace spdkfac::runtime
