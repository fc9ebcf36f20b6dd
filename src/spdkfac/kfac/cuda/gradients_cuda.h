// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// Multiplies `scaled` by `scales` (double, one for each), or, where `bad` (0-d bool) is set, sets
// these and `others` to zero, with few kernels on the current stream. Tensors are dense, of float
// or double each. no_cuda/ has that of a build without CUDA, which throws a ConfigError.
void scale_or_clear_cuda(const std::vector<at::Tensor>& scaled,
                         const std::vector<at::Tensor>& others, const at::Tensor& scales,
                         const at::Tensor& bad);

}  // namespace spdkfac::kfac
