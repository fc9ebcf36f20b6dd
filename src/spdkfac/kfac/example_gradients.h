// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/factor.h"

namespace spdkfac::kfac {

// The gradients of a layer's weight and bias for each example of a batch, as join_gradient() lays
// them out: [examples, groups, out, in·kernel | bias]. `input` and `gradient` are those of one
// call, `use` has the examples of the batch, `rows` is the number of a table's rows.
at::Tensor example_gradients(const at::Tensor& input, const at::Tensor& gradient,
                             const LayerUse& use, std::int64_t rows = 0);

}  // namespace spdkfac::kfac
