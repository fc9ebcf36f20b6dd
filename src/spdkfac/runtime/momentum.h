// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace spdkfac {

// What an optimizer with momentum does with a gradient: its update is along taken·gradient +
// carried·buffer. kl_clip limits all of that, not only the gradient.
struct Momentum {
  double taken = 1;
  double carried = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers;  // of parameters
};

// That of the coming update of torch's SGD; nothing is carried by other optimizers.
Momentum momentum_of(torch::optim::Optimizer& optimizer);

}  // namespace spdkfac
