// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// The length of each tensor, on its device; on a GPU with few kernels.
std::vector<at::Tensor> lengths_of(const std::vector<at::Tensor>& tensors);

// The squares of such lengths, added up by layer: [layers] in double precision. `layer_of` ascends:
// each layer's tensors lie side by side.
at::Tensor squares_by_layer(const std::vector<at::Tensor>& lengths,
                            const std::vector<std::size_t>& layer_of, std::size_t layers,
                            at::Device device);

}  // namespace spdkfac::kfac
