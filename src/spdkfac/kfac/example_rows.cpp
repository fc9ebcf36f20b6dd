// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/example_rows.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace spdkfac::kfac {
namespace {

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

// The same call with one position for each example; rows [examples, features of all groups].
ExampleRows as_points(const at::Tensor& rows, const LayerUse& use) {
  ExampleRows result{rows, use};
  result.use.positions = 1;
  result.use.conv.reset();
  if (use.groups() > 1) {
    result.use.conv = ConvCall(ConvGeometry{.groups = use.groups()});
    result.tensor = rows.reshape({rows.size(0), -1, 1, 1});
  }
  return result;
}

}  // namespace

at::Tensor by_example(const at::Tensor& rows, std::int64_t examples) {
  const at::Tensor values = wide(rows);
  const bool second = rows.dim() > 2 && rows.size(0) != examples && rows.size(1) == examples;
  return (second ? values.transpose(0, 1) : values).reshape({examples, -1, rows.size(-1)});
}

ExampleRows mean_inputs(const at::Tensor& input, const LayerUse& use) {
  const c10::NoGradGuard no_grad;
  at::Tensor rows = input;
  if (use.conv) {
    const at::Tensor batch = wide(with_examples(input, *use.conv));
    rows = mean_patches(batch, *use.conv).reshape({batch.size(0), -1});
  }
  return as_points(by_example(rows, use.examples).mean(1), use);
}

ExampleRows summed_gradients(const at::Tensor& gradient, const LayerUse& use) {
  const c10::NoGradGuard no_grad;
  at::Tensor rows = gradient;
  if (use.conv) {
    const at::Tensor batch = wide(with_examples(gradient, *use.conv));
    rows = batch.flatten(2).sum(-1);
  }
  return as_points(by_example(rows, use.examples).sum(1), use);
}

}  // namespace spdkfac::kfac
