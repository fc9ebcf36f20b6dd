// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/unit_rows.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "spdkfac/base/check.h"

namespace spdkfac::kfac {
namespace {

at::Tensor widened(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble ? values : values.to(at::kFloat);
}

// [leading dimensions…, units]
at::Tensor by_units(const NormCall& call, const at::Tensor& values) {
  if (!call.channels_first) return values.flatten(-call.unit_dimensions);
  return values.dim() > 2 ? values.flatten(2).sum(2) : values;
}

}  // namespace

LayerUse norm_use(const NormCall& call) {
  const at::Tensor& input = call.input;
  LayerUse use;
  use.by_example = true;
  const std::int64_t leading = call.channels_first ? 1 : input.dim() - call.unit_dimensions;
  use.examples = leading == 0 ? 1 : input.size(0);
  for (std::int64_t axis = 1; axis < leading; ++axis) use.positions *= input.size(axis);
  return use;
}

at::Tensor unit_rows(const NormCall& call, const at::Tensor& gradient, bool weight, bool bias) {
  const c10::NoGradGuard no_grad;
  const at::Tensor wide = widened(gradient);
  std::vector<at::Tensor> parts;
  if (weight) parts.push_back(by_units(call, wide * call.normalized(widened(call.input))));
  if (bias) parts.push_back(by_units(call, wide));
  return parts.size() == 1 ? parts.front() : at::stack(parts, -1).flatten(-2);
}

at::Tensor sums_of_examples(const at::Tensor& rows, const LayerUse& use) {
  const std::int64_t features = rows.size(-1);
  const std::int64_t count = std::min(use.examples, rows.numel() / features);
  const bool second = rows.dim() > 2 && rows.size(1) == use.examples &&
                      (use.time_first || rows.size(0) != use.examples);
  return (second ? rows.transpose(0, 1) : rows).reshape({count, -1, features}).sum(1);
}

void add_unit_products(const at::Tensor& rows, double scale, at::Tensor sum, bool overwrite) {
  const std::int64_t dim = sum.size(1);
  SPDKFAC_CHECK(rows.size(1) == sum.size(0) * dim, "units meet a sum of other ones");
  const at::Tensor values = rows.to(sum.scalar_type()).view({rows.size(0), -1, dim});
  if (overwrite) sum.zero_();
  for (std::int64_t row = 0; row < dim; ++row) {
    for (std::int64_t column = row; column < dim; ++column) {
      sum.select(1, row).select(1, column).add_(
          values.select(2, row).mul(values.select(2, column)).sum(0), scale);
    }
  }
}

}  // namespace spdkfac::kfac
