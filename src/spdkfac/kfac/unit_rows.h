// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/factor.h"

namespace spdkfac::kfac {

// How a norm was called: y = γ·x̂ + β with γ and β for each unit, such as a channel.
struct NormCall {
  at::Tensor input;
  std::function<at::Tensor(const at::Tensor& input)> normalized;  // x̂, of the input's shape
  bool channels_first = false;       // the units are dimension 1, else the last dimensions
  std::int64_t unit_dimensions = 1;  // how many, if the last
};

// Rows are the leading dimensions; with channels first the positions of an example are one row.
LayerUse norm_use(const NormCall& call);

// What γ and β, or one of them, get from each row of the output's gradient: g·x̂ and g, one unit
// after the other, [leading dimensions…, units·parameters], in single precision or a wider one.
at::Tensor unit_rows(const NormCall& call, const at::Tensor& gradient, bool weight, bool bias);

// Added up for each example, [examples, features]. Fewer rows than examples stay as they are.
at::Tensor sums_of_examples(const at::Tensor& rows, const LayerUse& use);

// Adds scale·Σvvᵀ for the blocks of `sum`, [units, parameters, parameters], that rows
// [count, units·parameters] meet, or overwrites it.
void add_unit_products(const at::Tensor& rows, double scale, at::Tensor sum, bool overwrite);

}  // namespace spdkfac::kfac
