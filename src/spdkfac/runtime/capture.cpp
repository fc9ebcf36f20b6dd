// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/capture.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"

namespace spdkfac::runtime {
namespace {

// A mode key above autograd and autocast that torch itself leaves without a fallback.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

struct Tap {
  std::weak_ptr<CaptureSink> sink;
  std::size_t layer = 0;
  bool bias = false;
  std::function<bool()> training;
};

// By weight. Each thread has its own, as it has its own set of dispatch keys that are switched on.
using Taps = std::unordered_multimap<const void*, Tap>;
Taps& taps_of_this_thread() {
  thread_local Taps taps;
  return taps;
}

std::array<std::int64_t, 2> pair_of(c10::SymIntArrayRef values) {
  const auto ints = C10_AS_INTARRAYREF_SLOW(values);
  SPDKFAC_CHECK(ints.size() == 1 || ints.size() == 2,
                "a convolution's argument has other than two");
  return {ints[0], ints[ints.size() - 1]};
}

void show(const Tap& tap, const at::Tensor& input, const std::optional<kfac::ConvGeometry>& conv,
          const at::Tensor& output) {
  const std::shared_ptr<CaptureSink> sink = tap.sink.lock();
  if (!sink || !tap.training() || !sink->wants(tap.layer)) return;
  auto on_gradient =
      sink->on_call(tap.layer, kfac::layer_use(input, conv, tap.bias), input, output);
  if (!on_gradient) return;
  // A second gradient of the same output is that of a double backward.
  output.register_hook([on_gradient = std::move(on_gradient),
                        done = std::make_shared<bool>(false)](const at::Tensor& gradient) {
    if (!std::exchange(*done, true)) on_gradient(gradient);
  });
}

// Shows a call that has used `weight` to all who track it; `make_call` is asked only then.
template <class MakeCall>
void observe(const at::Tensor& weight, const at::Tensor& output, const MakeCall& make_call) {
  if (!c10::GradMode::is_enabled() || !output.requires_grad() || !weight.requires_grad()) return;
  const auto [begin, end] = taps_of_this_thread().equal_range(weight.unsafeGetTensorImpl());
  for (auto tap = begin; tap != end; ++tap) {
    const auto [input, conv] = make_call();
    show(tap->second, input, conv, output);
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
  observe(weight, output,
          [&] { return convolution_call(input, weight, stride, padding, dilation, groups); });
  return output;
}

at::Tensor conv2d_padding(const at::Tensor& input, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                          std::string_view padding, c10::SymIntArrayRef dilation,
                          c10::SymInt groups) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  at::Tensor output = at::conv2d_symint(input, weight, bias, stride, padding, dilation, groups);
  observe(weight, output,
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
  if (!transposed && weight.dim() == 4) {
    observe(weight, output,
            [&] { return convolution_call(input, weight, stride, padding, dilation, groups); });
  }
  return output;
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  at::Tensor output = at::linear(input, weight, bias);
  observe(weight, output, [&] { return Call(input, std::nullopt); });
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
  observe(weight, output, [&] { return Call(input, std::nullopt); });
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
    return true;
  }();
  SPDKFAC_CHECK(done, "the capture is not installed");
}

}  // namespace

Capture::Capture(const std::vector<TrackedLayer>& layers, const std::shared_ptr<CaptureSink>& sink)
    : sink_(sink) {
  install();
  Taps& taps = taps_of_this_thread();
  for (std::size_t index = 0; index < layers.size(); ++index) {
    const TrackedLayer& layer = layers[index];
    weights_.push_back(layer.weight.unsafeGetTensorImpl());
    taps.emplace(weights_.back(), Tap{sink, index, layer.bias.defined(), layer.training});
  }
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

Capture::~Capture() {
  Taps& taps = taps_of_this_thread();
  const auto same = [this](const std::weak_ptr<CaptureSink>& other) {
    return !sink_.owner_before(other) && !other.owner_before(sink_);
  };
  for (const void* weight : weights_) {
    const auto [begin, end] = taps.equal_range(weight);
    const auto tap =
        std::find_if(begin, end, [&](const auto& entry) { return same(entry.second.sink); });
    if (tap != end) taps.erase(tap);
  }
  if (taps.empty()) c10::impl::tls_set_dispatch_key_included(kKey, false);
}

}  // namespace spdkfac::runtime
