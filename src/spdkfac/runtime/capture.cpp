// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/capture.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/runtime/lasting_output.h"

namespace spdkfac::runtime {
namespace {

// A mode key above autograd and autocast that torch itself leaves without a fallback.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// A weight that someone watches.
struct Tap {
  std::weak_ptr<CaptureSink> sink;
  std::optional<std::size_t> layer;  // none: another parameter
  at::Tensor weight;
  bool bias = false;
  std::function<bool()> training;
};

// Who watches what, in this process. Operators reach it on the threads that have the key switched
// on: those that made a capture, and autograd's while they work for these.
class Registry {
 public:
  using Found = std::vector<std::shared_ptr<const Tap>>;

  void add(const std::shared_ptr<const Tap>& tap) {
    const std::unique_lock lock(mutex_);
    taps_.emplace(tap->weight.unsafeGetTensorImpl(), tap);
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
  Found taps_of(const at::Tensor& weight) const {
    const std::shared_lock lock(mutex_);
    const auto [begin, end] = taps_.equal_range(weight.unsafeGetTensorImpl());
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

// Captures that live on this thread.
int& captures_of_this_thread() {
  thread_local int count = 0;
  return count;
}

std::array<std::int64_t, 2> pair_of(c10::SymIntArrayRef values) {
  const auto ints = C10_AS_INTARRAYREF_SLOW(values);
  SPDKFAC_CHECK(ints.size() == 1 || ints.size() == 2,
                "a convolution's argument has other than two");
  return {ints[0], ints[ints.size() - 1]};
}

// Whether the backward pass that runs accumulates into the weight: not one of autograd.grad(), nor
// one for other inputs.
bool accumulates_into(const at::Tensor& weight) {
  const auto* executed = torch::autograd::get_current_graph_task_exec_info();
  if (executed == nullptr || executed->empty()) return true;
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight);
  const auto found = executed->find(accumulator.get());
  return found != executed->end() && found->second.needed_;
}

// Whether this call repeats an earlier one for activations that were not kept.
bool is_repeated() {
  return torch::autograd::get_current_graph_task_id() != -1 &&
         !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

// Of an operator that is no layer; all that matters are the rows.
kfac::LayerUse use_of_other(const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& output, bool conv) {
  if (!conv) return kfac::layer_use(input, std::nullopt, false);
  const bool batched = input.dim() == weight.dim();
  kfac::LayerUse use{.conv = kfac::ConvGeometry{}, .examples = batched ? input.size(0) : 1};
  const std::int64_t channels = output.size(batched ? 1 : 0);
  use.positions = output.numel() / std::max<std::int64_t>(1, use.examples * channels);
  return use;
}

void show(const Tap& tap, CaptureSink& sink, const at::Tensor& input,
          const std::optional<kfac::ConvGeometry>& conv, const at::Tensor& output) {
  const at::Tensor result = lasting(output);
  auto on_gradient =
      sink.on_call(*tap.layer, kfac::layer_use(input, conv, tap.bias), input, result);
  if (!on_gradient) return;
  result.register_hook([on_gradient = std::move(on_gradient), weight = tap.weight,
                        shape = output.sizes().vec()](const at::Tensor& gradient) {
    if (accumulates_into(weight)) on_gradient(gradient.reshape(shape));
  });
}

// What has used a weight; kOther is an operator that no layer is made of.
enum class Operator { kLinear, kConvolution, kOther };

// Shows a call that has used `weight` to all who watch it; `make_call` is asked only for layers.
template <class MakeCall>
void observe(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& output,
             Operator what, const MakeCall& make_call) {
  if (!c10::GradMode::is_enabled() || !output.requires_grad() || !weight.requires_grad()) return;
  const Registry::Found taps = registry().taps_of(weight);
  if (taps.empty() || is_repeated()) return;
  for (const std::shared_ptr<const Tap>& tap : taps) {
    const std::shared_ptr<CaptureSink> sink = tap->sink.lock();
    if (!sink || !tap->training() || !sink->wants(tap->layer.value_or(0))) continue;
    if (tap->layer) {
      if (what == Operator::kOther) continue;
      const auto [shown, geometry] = make_call();
      show(*tap, *sink, shown, geometry, output);
    } else {
      sink->on_other_call(use_of_other(input, weight, output, what != Operator::kLinear), input,
                          lasting(output));
    }
  }
}

using Call = std::pair<at::Tensor, std::optional<kfac::ConvGeometry>>;

Call convolution_call(const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
                      c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                      const c10::SymInt& groups) {
  return {input, kfac::ConvGeometry{.kernel = {weight.size(2), weight.size(3)},
                                    .stride = pair_of(stride),
                                    .padding = pair_of(padding),
                                    .dilation = pair_of(dilation),
                                    .groups = groups.expect_int()}};
}

// `same` pads more on the far side where it cannot pad alike; then the padded input is shown.
Call padded_call(const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
                 std::string_view padding, c10::SymIntArrayRef dilation,
                 const c10::SymInt& groups) {
  Call call = convolution_call(input, weight, stride, {c10::SymInt(0)}, dilation, groups);
  if (padding != "same") return call;
  kfac::ConvGeometry& conv = *call.second;
  std::array<std::int64_t, 2> near{};
  std::array<std::int64_t, 2> far{};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const std::int64_t total = conv.dilation[axis] * (conv.kernel[axis] - 1);
    near[axis] = total / 2;
    far[axis] = total - near[axis];
  }
  if (near == far) {
    conv.padding = near;
  } else {
    const c10::NoGradGuard no_grad;
    call.first = at::constant_pad_nd(input, {near[1], far[1], near[0], far[0]}, 0);
  }
  return call;
}

at::Tensor conv2d(const at::Tensor& input, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                  c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, c10::SymInt groups) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  at::Tensor output = at::conv2d_symint(input, weight, bias, stride, padding, dilation, groups);
  observe(input, weight, output, Operator::kConvolution,
          [&] { return convolution_call(input, weight, stride, padding, dilation, groups); });
  return output;
}

at::Tensor conv2d_padding(const at::Tensor& input, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                          std::string_view padding, c10::SymIntArrayRef dilation,
                          c10::SymInt groups) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  at::Tensor output = at::conv2d_symint(input, weight, bias, stride, padding, dilation, groups);
  observe(input, weight, output, Operator::kConvolution,
          [&] { return padded_call(input, weight, stride, padding, dilation, groups); });
  return output;
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                       c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  at::Tensor output = at::convolution_symint(input, weight, bias, stride, padding, dilation,
                                             transposed, output_padding, groups);
  const bool layer = !transposed && weight.dim() == 4;
  observe(input, weight, output, layer ? Operator::kConvolution : Operator::kOther,
          [&] { return convolution_call(input, weight, stride, padding, dilation, groups); });
  return output;
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  at::Tensor output = at::linear(input, weight, bias);
  observe(input, weight, output, Operator::kLinear, [&] { return Call(input, std::nullopt); });
  return output;
}

// A product input·factor is a Linear layer when the factor is a tracked weight, transposed.
void observe_product(const at::Tensor& input, const at::Tensor& factor, const at::Tensor& output) {
  if (factor.dim() != 2 || !factor.is_view()) return;
  const at::Tensor weight(factor._base());
  if (weight.dim() != 2 || weight.size(0) != factor.size(1) || weight.size(1) != factor.size(0) ||
      weight.stride(0) != factor.stride(1) || weight.stride(1) != factor.stride(0)) {
    return;
  }
  observe(input, weight, output, Operator::kLinear, [&] { return Call(input, std::nullopt); });
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& input, const at::Tensor& factor,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  at::Tensor output = at::addmm(self, input, factor, beta, alpha);
  // Other multiples are no Linear layer: its gradient is that of the product.
  if (alpha.equal(1)) observe_product(input, factor, output);
  return output;
}

at::Tensor mm(const at::Tensor& input, const at::Tensor& factor) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  at::Tensor output = at::mm(input, factor);
  observe_product(input, factor, output);
  return output;
}

at::Tensor matmul(const at::Tensor& input, const at::Tensor& factor) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  at::Tensor output = at::matmul(input, factor);
  observe_product(input, factor, output);
  return output;
}

// --- losses: their first dimension is that of the examples ---

void observe_loss(const at::Tensor& scores, bool batched) {
  if (!c10::GradMode::is_enabled() || !scores.requires_grad()) return;
  const std::int64_t batch = batched && scores.dim() > 0 ? scores.size(0) : 1;
  for (const auto& sink : registry().sinks_of_this_thread()) sink->on_loss(batch);
}

at::Tensor cross_entropy_loss(const at::Tensor& self, const at::Tensor& target,
                              const std::optional<at::Tensor>& weight, std::int64_t reduction,
                              c10::SymInt ignore_index, double label_smoothing) {
  observe_loss(self, self.dim() > 1);
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  return at::cross_entropy_loss_symint(self, target, weight, reduction, ignore_index,
                                       label_smoothing);
}

at::Tensor nll_loss_nd(const at::Tensor& self, const at::Tensor& target,
                       const std::optional<at::Tensor>& weight, std::int64_t reduction,
                       c10::SymInt ignore_index) {
  observe_loss(self, self.dim() > 1);
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  return at::nll_loss_nd_symint(self, target, weight, reduction, ignore_index);
}

at::Tensor nll_loss(const at::Tensor& self, const at::Tensor& target,
                    const std::optional<at::Tensor>& weight, std::int64_t reduction,
                    c10::SymInt ignore_index) {
  observe_loss(self, self.dim() > 1);
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  return at::nll_loss_symint(self, target, weight, reduction, ignore_index);
}

at::Tensor binary_cross_entropy(const at::Tensor& self, const at::Tensor& target,
                                const std::optional<at::Tensor>& weight, std::int64_t reduction) {
  observe_loss(self, true);
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  return at::binary_cross_entropy(self, target, weight, reduction);
}

at::Tensor binary_cross_entropy_with_logits(const at::Tensor& self, const at::Tensor& target,
                                            const std::optional<at::Tensor>& weight,
                                            const std::optional<at::Tensor>& pos_weight,
                                            std::int64_t reduction) {
  observe_loss(self, true);
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  return at::binary_cross_entropy_with_logits(self, target, weight, pos_weight, reduction);
}

at::Tensor mse_loss(const at::Tensor& self, const at::Tensor& target, std::int64_t reduction) {
  observe_loss(self, true);
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  return at::mse_loss(self, target, reduction);
}

// Once per process. The libraries are never destroyed: unregistering while the key is on anywhere
// would break the operators there. Statics keep them reachable, so that they are no leaks.
void install() {
  static const bool done = [] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kKey)) {
      throw ConfigError(
          "capture: another library in this process uses torch's dispatch key "
          "TESTING_ONLY_GenericMode; use only one of them");
    }
    [[gnu::used]] static auto* fallback =
        new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    fallback->fallback(torch::CppFunction::makeFallthrough());
    [[gnu::used]] static auto* operators =
        new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    operators->impl("conv2d", conv2d);
    operators->impl("conv2d.padding", conv2d_padding);
    operators->impl("convolution", convolution);
    operators->impl("linear", linear);
    operators->impl("addmm", addmm);
    operators->impl("mm", mm);
    operators->impl("matmul", matmul);
    operators->impl("cross_entropy_loss", cross_entropy_loss);
    operators->impl("nll_loss_nd", nll_loss_nd);
    operators->impl("nll_loss", nll_loss);
    operators->impl("binary_cross_entropy", binary_cross_entropy);
    operators->impl("binary_cross_entropy_with_logits", binary_cross_entropy_with_logits);
    operators->impl("mse_loss", mse_loss);
    return true;
  }();
  SPDKFAC_CHECK(done, "the capture is not installed");
}

}  // namespace

Capture::Capture(const std::vector<TrackedLayer>& layers, const std::shared_ptr<CaptureSink>& sink,
                 const std::vector<at::Tensor>& others)
    : sink_(sink), thread_(std::this_thread::get_id()) {
  install();
  registry().add(sink_);
  for (std::size_t index = 0; index < layers.size(); ++index) {
    const TrackedLayer& layer = layers[index];
    registry().add(std::make_shared<Tap>(
        Tap{sink, index, layer.weight, layer.bias.defined(), layer.training}));
  }
  for (const at::Tensor& other : others) {
    if (other.dim() < 2 || layers.empty()) continue;
    // The model trains when its first layer does.
    registry().add(
        std::make_shared<Tap>(Tap{sink, std::nullopt, other, false, layers.front().training}));
  }
  if (captures_of_this_thread()++ == 0) c10::impl::tls_set_dispatch_key_included(kKey, true);
}

// Destroyed on another thread, it leaves the key on where it was made, which costs little.
Capture::~Capture() {
  registry().remove(sink_);
  if (thread_ != std::this_thread::get_id()) return;
  if (--captures_of_this_thread() == 0) c10::impl::tls_set_dispatch_key_included(kKey, false);
}

}  // namespace spdkfac::runtime
