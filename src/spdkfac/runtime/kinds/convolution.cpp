// SPDX-License-Identifier: Apache-2.0
// Convolutions of one to three dimensions, and transposed ones.
#include <string_view>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/conv.h>

#include "spdkfac/base/check.h"
#include "spdkfac/runtime/capture_registry.h"
#include "spdkfac/runtime/kinds/kind.h"

namespace spdkfac::runtime {
namespace {

const std::vector<CoveredKind>& kinds_of_convolutions() {
  using kfac::WeightLayout;
  static const std::vector<CoveredKind> kinds = {
      {LayerKind::kConv1d, WeightLayout::kOutIn, 1, false},
      {LayerKind::kConv2d, WeightLayout::kOutIn, 2, false},
      {LayerKind::kConv3d, WeightLayout::kOutIn, 3, false},
      {LayerKind::kConvTranspose1d, WeightLayout::kInOut, 1, true},
      {LayerKind::kConvTranspose2d, WeightLayout::kInOut, 2, true},
      {LayerKind::kConvTranspose3d, WeightLayout::kInOut, 3, true}};
  return kinds;
}

template <class Module>
void add_layer_of(const torch::nn::Module& module, LayerKind kind,
                  std::vector<TrackedLayer>& layers) {
  if (const auto* conv = module.as<Module>()) {
    layers.push_back({.name = "",
                      .weight = conv->weight,
                      .bias = conv->bias,
                      .groups = conv->options.groups(),
                      .kind = kind});
  }
}

std::vector<TrackedLayer> convolution_layers(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  std::vector<TrackedLayer> layers;
  add_layer_of<nn::Conv1dImpl>(module, LayerKind::kConv1d, layers);
  add_layer_of<nn::Conv2dImpl>(module, LayerKind::kConv2d, layers);
  add_layer_of<nn::Conv3dImpl>(module, LayerKind::kConv3d, layers);
  add_layer_of<nn::ConvTranspose1dImpl>(module, LayerKind::kConvTranspose1d, layers);
  add_layer_of<nn::ConvTranspose2dImpl>(module, LayerKind::kConvTranspose2d, layers);
  add_layer_of<nn::ConvTranspose3dImpl>(module, LayerKind::kConvTranspose3d, layers);
  return layers;
}

// The arguments of a call, in torch's own lists: one value for all axes, or one for each.
struct Arguments {
  c10::SymIntArrayRef stride;
  c10::SymIntArrayRef padding;
  c10::SymIntArrayRef dilation;
  const c10::SymInt& groups;
  bool transposed = false;
  c10::SymIntArrayRef output_padding = {};
};

void set_axes(c10::SymIntArrayRef values, std::int64_t dimensions, kfac::ConvCall::Axes& axes) {
  const auto ints = C10_AS_INTARRAYREF_SLOW(values);
  const auto count = static_cast<std::size_t>(dimensions);
  SPDKFAC_CHECK(ints.size() == 1 || ints.size() == count,
                "a convolution's argument has other than one value for each axis");
  for (std::size_t i = 0; i < count; ++i) axes[3 - count + i] = ints[ints.size() == 1 ? 0 : i];
}

kfac::ConvCall call_of(const at::Tensor& weight, const Arguments& arguments) {
  kfac::ConvCall call;
  call.dimensions = weight.dim() - 2;
  call.groups = arguments.groups.expect_int();
  call.transposed = arguments.transposed;
  for (std::int64_t axis = 2; axis < weight.dim(); ++axis) {
    call.kernel[static_cast<std::size_t>(axis + 3 - weight.dim())] = weight.size(axis);
  }
  set_axes(arguments.stride, call.dimensions, call.stride);
  set_axes(arguments.padding, call.dimensions, call.padding);
  set_axes(arguments.dilation, call.dimensions, call.dilation);
  if (call.transposed) set_axes(arguments.output_padding, call.dimensions, call.output_padding);
  return call;
}

// `same` pads more on the far side where it cannot pad alike; then the padded input is shown.
LayerCall padded_alike(LayerCall shown) {
  kfac::ConvCall& call = *shown.conv;
  std::vector<std::int64_t> pad;  // torch's order: the last axis first
  bool alike = true;
  kfac::ConvCall::Axes near{};
  for (std::size_t axis = 3; axis-- > 3 - static_cast<std::size_t>(call.dimensions);) {
    const std::int64_t total = call.dilation[axis] * (call.kernel[axis] - 1);
    near[axis] = total / 2;
    pad.insert(pad.end(), {near[axis], total - near[axis]});
    alike = alike && total % 2 == 0;
  }
  if (alike) {
    call.padding = near;
  } else {
    const c10::NoGradGuard no_grad;
    shown.input = at::constant_pad_nd(shown.input, pad, 0);
  }
  return shown;
}

void observe_convolution(const at::Tensor& input, const at::Tensor& weight,
                         const at::Tensor& output, const Arguments& arguments,
                         bool same_padding = false) {
  const auto match = [&](const TrackedLayer& layer) -> std::optional<LayerCall> {
    const CoveredKind& kind = kind_of(layer.kind);
    if (kind.dimensions != weight.dim() - 2 || kind.transposed != arguments.transposed ||
        !layer.weight.is_same(weight)) {
      return std::nullopt;
    }
    LayerCall shown{.input = input, .conv = call_of(weight, arguments)};
    return same_padding ? padded_alike(std::move(shown)) : shown;
  };
  observe({.input = input, .weight = weight, .output = output, .convolution = true}, match);
}

using Sizes = c10::SymIntArrayRef;
using Bias = const std::optional<at::Tensor>&;

template <auto Convolve>
at::Tensor watched_convolution(const at::Tensor& input, const at::Tensor& weight, Bias bias,
                               Sizes stride, Sizes padding, Sizes dilation, c10::SymInt groups) {
  const CaptureOff off;
  at::Tensor output = Convolve(input, weight, bias, stride, padding, dilation, groups);
  observe_convolution(input, weight, output, {stride, padding, dilation, groups});
  return output;
}

template <auto Convolve>
at::Tensor watched_padding(const at::Tensor& input, const at::Tensor& weight, Bias bias,
                           Sizes stride, std::string_view padding, Sizes dilation,
                           c10::SymInt groups) {
  const CaptureOff off;
  at::Tensor output = Convolve(input, weight, bias, stride, padding, dilation, groups);
  const c10::SymInt none(0);
  observe_convolution(input, weight, output, {stride, {none}, dilation, groups}, padding == "same");
  return output;
}

template <auto Convolve>
at::Tensor watched_transposed(const at::Tensor& input, const at::Tensor& weight, Bias bias,
                              Sizes stride, Sizes padding, Sizes output_padding, c10::SymInt groups,
                              Sizes dilation) {
  const CaptureOff off;
  at::Tensor output =
      Convolve(input, weight, bias, stride, padding, output_padding, groups, dilation);
  observe_convolution(input, weight, output,
                      {stride, padding, dilation, groups, true, output_padding});
  return output;
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, Bias bias, Sizes stride,
                       Sizes padding, Sizes dilation, bool transposed, Sizes output_padding,
                       c10::SymInt groups) {
  const CaptureOff off;
  at::Tensor output = at::convolution_symint(input, weight, bias, stride, padding, dilation,
                                             transposed, output_padding, groups);
  observe_convolution(input, weight, output,
                      {stride, padding, dilation, groups, transposed, output_padding});
  return output;
}

// Overloads of torch's functions, each as one value.
constexpr auto kConv1d = [](const auto&... arguments) { return at::conv1d_symint(arguments...); };
constexpr auto kConv2d = [](const auto&... arguments) { return at::conv2d_symint(arguments...); };
constexpr auto kConv3d = [](const auto&... arguments) { return at::conv3d_symint(arguments...); };

void install_convolutions(torch::Library& operators) {
  operators.impl("conv1d", watched_convolution<kConv1d>);
  operators.impl("conv2d", watched_convolution<kConv2d>);
  operators.impl("conv3d", watched_convolution<kConv3d>);
  operators.impl("conv1d.padding", watched_padding<kConv1d>);
  operators.impl("conv2d.padding", watched_padding<kConv2d>);
  operators.impl("conv3d.padding", watched_padding<kConv3d>);
  operators.impl("conv_transpose1d", watched_transposed<at::conv_transpose1d_symint>);
  operators.impl("conv_transpose2d.input", watched_transposed<at::conv_transpose2d_symint>);
  operators.impl("conv_transpose3d.input", watched_transposed<at::conv_transpose3d_symint>);
  operators.impl("convolution", convolution);
}

}  // namespace

KindFile convolution_kinds() {
  return {kinds_of_convolutions(), convolution_layers, install_convolutions};
}

}  // namespace spdkfac::runtime
