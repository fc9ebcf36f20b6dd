// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/conv_call.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"

namespace spdkfac::kfac {
namespace {

// The axis of a tensor [N, C, …], and that of a ConvCall's values.
struct AxisPlace {
  std::int64_t of_tensor = 0;
  std::size_t of_call = 0;
};

std::vector<AxisPlace> axes_of(const ConvCall& call) {
  std::vector<AxisPlace> axes;
  for (std::int64_t i = 0; i < call.dimensions; ++i) {
    axes.push_back({2 + i, static_cast<std::size_t>(3 - call.dimensions + i)});
  }
  return axes;
}

std::int64_t reach_of(const ConvCall& call, std::size_t axis) {
  return call.dilation[axis] * (call.kernel[axis] - 1);
}

std::int64_t output_size(const ConvCall& call, const at::Tensor& input, const AxisPlace& axis) {
  const std::int64_t size = input.size(axis.of_tensor);
  const std::int64_t reach = reach_of(call, axis.of_call);
  const std::int64_t stride = call.stride[axis.of_call];
  const std::int64_t padding = 2 * call.padding[axis.of_call];
  const std::int64_t count = call.transposed ? (size - 1) * stride - padding + reach +
                                                   call.output_padding[axis.of_call] + 1
                                             : (size + padding - reach - 1 + stride) / stride;
  SPDKFAC_CHECK(
      count > 0 && (call.transposed || size + padding > reach),
      fmt::format("a kernel that reaches over {} has no place in an input of {}", reach + 1, size));
  return count;
}

// torch's order: the last axis first, near and far side.
at::Tensor padded(const at::Tensor& input, const std::vector<std::array<std::int64_t, 2>>& sides) {
  std::vector<std::int64_t> pad;
  for (auto axis = sides.rbegin(); axis != sides.rend(); ++axis) {
    pad.insert(pad.end(), axis->begin(), axis->end());
  }
  const bool any = std::any_of(pad.begin(), pad.end(), [](std::int64_t one) { return one != 0; });
  return any ? at::constant_pad_nd(input, pad, 0) : input;
}

// A transposed convolution adds kernel·x to outputs at stride·position − padding + dilation·k: the
// output at p sees, with place k of the kernel, the input with stride − 1 zeros between elements
// at p + padding − dilation·k. Backwards (input and outputs mirrored) that is a convolution with
// stride 1 in the kernel's own order.
at::Tensor spread_and_mirrored(const at::Tensor& input, const ConvCall& call) {
  const std::vector<AxisPlace> axes = axes_of(call);
  std::vector<std::int64_t> mirrored;
  std::vector<std::int64_t> sizes = input.sizes().vec();
  std::vector<std::array<std::int64_t, 2>> sides;
  for (const AxisPlace& axis : axes) {
    mirrored.push_back(axis.of_tensor);
    auto& size = sizes[static_cast<std::size_t>(axis.of_tensor)];
    size = (size - 1) * call.stride[axis.of_call] + 1;
    const std::int64_t far = reach_of(call, axis.of_call) - call.padding[axis.of_call];
    sides.push_back({far + call.output_padding[axis.of_call], far});
  }
  const at::Tensor spread = at::zeros(sizes, input.options());
  at::Tensor places = spread;
  for (const AxisPlace& axis : axes) {
    places = places.slice(axis.of_tensor, 0, std::nullopt, call.stride[axis.of_call]);
  }
  places.copy_(input.flip(mirrored));
  return padded(spread, sides);
}

// The same convolution of what spread_and_mirrored() returns.
ConvCall of_mirrored(ConvCall call) {
  call.stride = {1, 1, 1};
  call.padding = {0, 0, 0};
  call.output_padding = {0, 0, 0};
  call.transposed = false;
  return call;
}

// [N, C, D, H, W] as [N·D', C·kd, H, W]: slices along the depth become channels.
at::Tensor depth_as_channels(const at::Tensor& input, const ConvCall& call) {
  const std::int64_t padding = call.padding[0];
  const at::Tensor windows = padded(input, {{padding, padding}, {0, 0}, {0, 0}})
                                 .unfold(2, reach_of(call, 0) + 1, call.stride[0])
                                 .slice(-1, 0, std::nullopt, call.dilation[0]);
  return windows.permute({0, 2, 1, 5, 3, 4})
      .reshape({-1, input.size(1) * call.kernel[0], input.size(3), input.size(4)});
}

// What each place of the kernel reads on an axis, as the mean over the outputs: [kernel, size].
at::Tensor mean_reads(const ConvCall& call, const at::Tensor& input, const AxisPlace& axis) {
  const std::int64_t size = input.size(axis.of_tensor);
  const std::int64_t outputs = output_size(call, input, axis);
  const std::int64_t stride = call.stride[axis.of_call];
  const std::int64_t padding = call.padding[axis.of_call];
  at::Tensor reads = at::zeros({call.kernel[axis.of_call], size}, at::kDouble);
  auto shares = reads.accessor<double, 2>();
  for (std::int64_t place = 0; place < call.kernel[axis.of_call]; ++place) {
    const std::int64_t offset = place * call.dilation[axis.of_call];
    for (std::int64_t out = 0; out < outputs; ++out) {
      // In a transposed convolution the input at i is written to i·stride − padding + offset.
      const std::int64_t spot =
          call.transposed ? out + padding - offset : out * stride - padding + offset;
      if (spot < 0 || (call.transposed && spot % stride != 0)) continue;
      const std::int64_t read = call.transposed ? spot / stride : spot;
      if (read < size) shares[place][read] += 1 / static_cast<double>(outputs);
    }
  }
  return reads.to(input.options());
}

ConvGeometry plane_of(const ConvCall& call) {
  const auto plane = [](const ConvCall::Axes& axes) {
    return std::array<std::int64_t, 2>{axes[1], axes[2]};
  };
  return {plane(call.kernel), plane(call.stride), plane(call.padding), plane(call.dilation),
          call.groups};
}

}  // namespace

ConvCall::ConvCall(const ConvGeometry& plane)
    : kernel{1, plane.kernel[0], plane.kernel[1]},
      stride{1, plane.stride[0], plane.stride[1]},
      padding{0, plane.padding[0], plane.padding[1]},
      dilation{1, plane.dilation[0], plane.dilation[1]},
      groups(plane.groups) {}

at::Tensor with_examples(const at::Tensor& input, const ConvCall& call) {
  return input.dim() == call.dimensions + 1 ? input.unsqueeze(0) : input;
}

std::int64_t output_positions(const at::Tensor& input, const ConvCall& call) {
  std::int64_t positions = 1;
  for (const AxisPlace& axis : axes_of(call)) positions *= output_size(call, input, axis);
  return positions;
}

at::Tensor mean_patches(const at::Tensor& input, const ConvCall& call) {
  at::Tensor patches = input;
  for (const AxisPlace& axis : axes_of(call)) {
    patches = at::matmul(patches.movedim(axis.of_tensor, -1), mean_reads(call, input, axis).t())
                  .movedim(-1, axis.of_tensor);
  }
  return patches;
}

PlaneConvolution as_planes(const at::Tensor& input, const ConvCall& call, Bytes memory) {
  PlaneConvolution result{plane_of(call.transposed ? of_mirrored(call) : call), {input}, call};
  if (input.size(0) == 0 || (!call.transposed && call.dimensions < 3)) return result;
  const std::int64_t elements =
      call.kernel[0] * input.size(1) *
      (call.transposed ? output_positions(input, call) : input[0][0].numel());
  const std::int64_t bytes = elements * static_cast<std::int64_t>(input.element_size());
  result.parts = input.split(std::max<std::int64_t>(1, memory.value() / bytes));
  return result;
}

at::Tensor PlaneConvolution::images(std::size_t part) const {
  const at::Tensor input = call.transposed ? spread_and_mirrored(parts[part], call) : parts[part];
  if (call.dimensions < 3) return as_images(input);
  return depth_as_channels(input, call.transposed ? of_mirrored(call) : call);
}

at::Tensor as_images(const at::Tensor& tensor) {
  if (tensor.dim() == 3) return tensor.unsqueeze(2);
  return tensor.dim() == 5 ? tensor.flatten(2, 3) : tensor;
}

}  // namespace spdkfac::kfac
