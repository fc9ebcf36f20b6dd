// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/factor.h"

namespace spdkfac::kfac {

// What a call of a layer saw, by example; `use` has the examples of the batch. Where these are not
// the tensor's first dimension, nor the second one, the rows of an example follow each other, as
// those of windows do. Half precision becomes float.

// [examples, positions, features] of a Linear layer's input or of the gradient of its output.
at::Tensor by_example(const at::Tensor& rows, std::int64_t examples);

// One row for each example (Sharing::kReduce), and the use that it is.
struct ExampleRows {
  at::Tensor tensor;
  LayerUse use;
};
ExampleRows mean_inputs(const at::Tensor& input, const LayerUse& use);
ExampleRows summed_gradients(const at::Tensor& gradient, const LayerUse& use);

}  // namespace spdkfac::kfac
