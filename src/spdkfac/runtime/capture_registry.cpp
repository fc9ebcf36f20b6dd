// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/capture_registry.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "spdkfac/base/error.h"
#include "spdkfac/runtime/lasting_output.h"

namespace spdkfac::runtime {
namespace {

// A weight that someone watches.
struct Tap {
  std::weak_ptr<CaptureSink> sink;
  std::optional<std::size_t> index;  // of the layer; none: another parameter
  TrackedLayer layer;                // of another parameter the weight and when it counts
  std::vector<std::int64_t> shape;   // of the weight when the watch began
};

class Registry {
 public:
  using Found = std::vector<std::shared_ptr<const Tap>>;

  void add(const std::shared_ptr<const Tap>& tap) {
    const std::unique_lock lock(mutex_);
    taps_.emplace(tap->layer.weight.unsafeGetTensorImpl(), tap);
  }
  void add(const std::weak_ptr<CaptureSink>& sink) {
    const std::unique_lock lock(mutex_);
    sinks_.push_back({sink, std::this_thread::get_id()});
  }
  void remove(const std::weak_ptr<CaptureSink>& sink) {
    const auto same = [&](const std::weak_ptr<CaptureSink>& other) {
      return !sink.owner_before(other) && !other.owner_before(sink);
    };
    const std::unique_lock lock(mutex_);
    std::erase_if(taps_, [&](const auto& entry) { return same(entry.second->sink); });
    std::erase_if(sinks_, [&](const Listener& one) { return same(one.sink); });
  }
  // Of the tensor, or of what it is a view of.
  Found taps_of(const at::Tensor& tensor) const {
    const std::shared_lock lock(mutex_);
    auto [begin, end] = taps_.equal_range(tensor.unsafeGetTensorImpl());
    if (begin == end && tensor.is_view()) {
      std::tie(begin, end) = taps_.equal_range(tensor._base().unsafeGetTensorImpl());
    }
    Found found;
    for (auto tap = begin; tap != end; ++tap) found.push_back(tap->second);
    return found;
  }
  std::vector<std::shared_ptr<CaptureSink>> sinks_of_this_thread() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<CaptureSink>> found;
    for (const Listener& one : sinks_) {
      if (one.thread != std::this_thread::get_id()) continue;
      if (auto sink = one.sink.lock()) found.push_back(std::move(sink));
    }
    return found;
  }

 private:
  struct Listener {
    std::weak_ptr<CaptureSink> sink;
    std::thread::id thread;
  };
  mutable std::shared_mutex mutex_;
  std::unordered_multimap<const void*, std::shared_ptr<const Tap>> taps_;
  std::vector<Listener> sinks_;
};

// Never destroyed: threads may outlive statics.
Registry& registry() {
  static auto* const one = new Registry;
  return *one;
}

// Whether the backward pass that runs accumulates into the parameter: not one of autograd.grad(),
// nor one for other inputs.
bool accumulates_into(const at::Tensor& parameter) {
  const auto* executed = torch::autograd::get_current_graph_task_exec_info();
  if (executed == nullptr || executed->empty()) return true;
  const auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  const auto found = executed->find(accumulator.get());
  return found != executed->end() && found->second.needed_;
}

// Whether this call repeats an earlier one for activations that were not kept.
bool is_repeated() {
  return torch::autograd::get_current_graph_task_id() != -1 &&
         !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

// Nested tensors and those inside torch.func's transforms have no rows that could be counted.
bool has_rows(const at::Tensor& tensor) {
  return !tensor.is_nested() &&
         !tensor.key_set().has_any(c10::DispatchKeySet(
             {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper}));
}

void require_same_shape(const Tap& tap) {
  const at::Tensor& weight = tap.layer.weight;
  if (weight.sizes() == at::IntArrayRef(tap.shape)) return;
  throw ConfigError(
      fmt::format("kfac: the weight of layer {} is [{}], but was [{}] when the optimizer was made; "
                  "make it again after layers have been changed",
                  tap.layer.name, fmt::join(weight.sizes(), ", "), fmt::join(tap.shape, ", ")));
}

// Of an operator that is no layer; all that matters are the rows.
kfac::LayerUse use_of_other(const OperatorCall& call) {
  const at::Tensor& input = call.input;
  if (!call.convolution) return kfac::layer_use(input, std::nullopt, false);
  const bool batched = input.dim() == call.weight.dim();
  kfac::LayerUse use{.conv = kfac::ConvCall{}, .examples = batched ? input.size(0) : 1};
  const std::int64_t channels = call.output.size(batched ? 1 : 0);
  use.positions = call.output.numel() / std::max<std::int64_t>(1, use.examples * channels);
  return use;
}

kfac::LayerUse use_of(const LayerCall& call, const TrackedLayer& layer) {
  if (call.norm) return kfac::norm_use(*call.norm);
  if (call.padding) return kfac::lookup_use(call.input, *call.padding);
  return kfac::layer_use(call.input, call.conv, layer.bias.defined());
}

void show(const Tap& tap, CaptureSink& sink, const LayerCall& call, const at::Tensor& output) {
  const TrackedLayer& layer = tap.layer;
  kfac::LayerUse use = use_of(call, layer);
  // Padding has no part in the gradient of a table, though its output may have a gradient.
  at::Tensor counted;
  if (call.padding.value_or(-1) >= 0) counted = call.input.ne(*call.padding).unsqueeze(-1);
  use.weight = !layer.frozen_weight;
  const at::Tensor result = lasting(output);
  auto on_gradient = sink.on_call(*tap.index, use, call.input, result);
  if (!on_gradient) return;
  // A norm's input is let go once its gradient has come: the graph may live on.
  const auto norm = std::make_shared<std::optional<kfac::NormCall>>(call.norm);
  if (*norm && layer.frozen_weight) (*norm)->input.reset();  // x̂ is for the weight
  result.register_hook([on_gradient = std::move(on_gradient), parameter = layer.leading(), norm,
                        trained = std::pair(use.weight, layer.bias.defined()),
                        part = ParameterPart({}, call.outputs, output.dim() - 1), counted,
                        shape = output.sizes().vec(),
                        every = sink.wants_every_gradient()](const at::Tensor& gradient) {
    if (!every && !accumulates_into(parameter)) return;
    const at::Tensor own = part.of(gradient.reshape(shape));
    if (const auto held = std::exchange(*norm, std::nullopt)) {
      const CaptureOff off;
      return on_gradient(kfac::unit_rows(*held, own, trained.first, trained.second));
    }
    on_gradient(counted.defined() ? own * counted : own);
  });
}

}  // namespace

void watch(const TrackedLayer& layer, std::size_t index, const std::weak_ptr<CaptureSink>& sink) {
  registry().add(std::make_shared<Tap>(Tap{sink, index, layer, layer.weight.sizes().vec()}));
}

void watch_other(const at::Tensor& parameter, const std::function<bool()>& training,
                 const std::weak_ptr<CaptureSink>& sink) {
  registry().add(std::make_shared<Tap>(
      Tap{sink, std::nullopt, {.name = "", .weight = parameter, .training = training}, {}}));
}

void listen(const std::weak_ptr<CaptureSink>& sink) { registry().add(sink); }

void forget(const std::weak_ptr<CaptureSink>& sink) { registry().remove(sink); }

std::vector<std::shared_ptr<CaptureSink>> listeners_of_this_thread() {
  return registry().sinks_of_this_thread();
}

bool is_watched(const at::Tensor& tensor) { return !registry().taps_of(tensor).empty(); }

void observe(const OperatorCall& call,
             c10::function_ref<std::optional<LayerCall>(const TrackedLayer&)> match) {
  if (!c10::GradMode::is_enabled() || !call.output.requires_grad()) return;
  const Registry::Found taps = registry().taps_of(call.weight);
  if (taps.empty() || is_repeated() || !has_rows(call.input) || !has_rows(call.output)) return;
  for (const std::shared_ptr<const Tap>& tap : taps) {
    const std::shared_ptr<CaptureSink> sink = tap->sink.lock();
    if (!sink || !tap->layer.leading().requires_grad() || !tap->layer.training()) continue;
    if (!sink->wants(tap->index.value_or(0))) continue;
    if (tap->index) {
      require_same_shape(*tap);
      std::optional<LayerCall> of_layer = match(tap->layer);
      if (of_layer && of_layer->input.layout() != at::kStrided) {
        of_layer->input = of_layer->input.detach().to_dense();
      }
      if (of_layer) show(*tap, *sink, *of_layer, call.output);
    } else if (call.of_others) {
      sink->on_other_call(use_of_other(call), call.input, lasting(call.output));
    }
  }
}

}  // namespace spdkfac::runtime
