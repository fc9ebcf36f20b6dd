// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/example_gradients.h"

#include <array>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "spdkfac/kfac/example_rows.h"

namespace spdkfac::kfac {
namespace {

// [1, N·C, …]: examples as groups of one convolution.
at::Tensor as_groups(const at::Tensor& batch) { return batch.flatten(0, 1).unsqueeze(0); }

std::vector<std::int64_t> last_axes(const ConvCall::Axes& axes, std::int64_t dimensions) {
  return {axes.end() - dimensions, axes.end()};
}

// Of a convolution's weight: [images, groups, out, in·kernel].
at::Tensor image_gradients(const at::Tensor& input, const at::Tensor& gradient,
                           const ConvCall& call) {
  const std::int64_t images = input.size(0);
  // A transposed convolution has its input's channels first.
  const std::int64_t first = (call.transposed ? input : gradient).size(1);
  const std::int64_t second = (call.transposed ? gradient : input).size(1) / call.groups;
  const auto of = [&](const ConvCall::Axes& axes) { return last_axes(axes, call.dimensions); };
  std::vector<std::int64_t> shape = {images * first, second};
  for (const std::int64_t size : of(call.kernel)) shape.push_back(size);
  // Only its shape is used.
  const at::Tensor weight = at::zeros({1}, input.options()).expand(shape);
  const at::Tensor found = std::get<1>(at::convolution_backward(
      as_groups(gradient), as_groups(input), weight, at::OptionalIntArrayRef(), of(call.stride),
      of(call.padding), of(call.dilation), call.transposed, of(call.output_padding),
      images * call.groups, std::array<bool, 3>{false, true, false}));
  const at::Tensor parts = found.reshape({images, call.groups, first / call.groups, second, -1});
  return (call.transposed ? parts.transpose(2, 3) : parts).flatten(3);
}

// Images of one example follow each other.
at::Tensor summed_to(const at::Tensor& of_images, std::int64_t examples) {
  if (of_images.size(0) == examples) return of_images;
  return of_images.unflatten(0, {examples, -1}).sum(1);
}

at::Tensor table_gradients(const at::Tensor& indices, const at::Tensor& gradient,
                           std::int64_t examples, std::int64_t rows) {
  const at::Tensor places = indices.reshape({examples, -1}).to(at::kLong);
  const at::Tensor first =
      at::arange(examples, places.options()).mul(rows).unsqueeze(1);  // rows of each example
  const at::Tensor values = gradient.reshape({-1, gradient.size(-1)});
  const at::Tensor sums = at::zeros({examples * rows, values.size(1)}, values.options());
  sums.index_add_(0, (places + first).reshape({-1}), values);
  return sums.view({examples, 1, rows, -1}).transpose(2, 3);
}

}  // namespace

at::Tensor example_gradients(const at::Tensor& input, const at::Tensor& gradient,
                             const LayerUse& use, std::int64_t rows) {
  const c10::NoGradGuard no_grad;
  const auto type = gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (use.lookup) return table_gradients(input, gradient.to(type), use.examples, rows);
  std::vector<at::Tensor> parts;
  if (use.weight && use.conv) {
    parts.push_back(
        summed_to(image_gradients(with_examples(input, *use.conv).to(type),
                                  with_examples(gradient, *use.conv).to(type), *use.conv),
                  use.examples));
  } else if (use.weight) {
    parts.push_back(at::bmm(by_example(gradient, use.examples).transpose(1, 2),
                            by_example(input.to(type), use.examples))
                        .unsqueeze(1));
  }
  if (use.bias) {
    const at::Tensor sums = summed_gradients(gradient, use).tensor;
    parts.push_back(sums.reshape({use.examples, use.groups(), -1, 1}));
  }
  return at::cat(parts, -1);
}

}  // namespace spdkfac::kfac
