// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/symmetric.h"

namespace spdkfac::kfac {

// pack_upper and unpack_upper for tensors on a GPU, queued on its current stream; sizes were
// checked. no_cuda/ has those of a build without CUDA, which throw a ConfigError.
void pack_upper_cuda(const std::vector<Triangle>& triangles);
void unpack_upper_cuda(const at::Tensor& packed, at::Tensor matrix);

}  // namespace spdkfac::kfac
