// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/momentum.h"

#include <algorithm>

#include <torch/optim/sgd.h>

namespace spdkfac {

Momentum momentum_of(torch::optim::Optimizer& optimizer) {
  Momentum result;
  double taken = 0;  // the largest of the groups
  if (dynamic_cast<torch::optim::SGD*>(&optimizer) == nullptr) return result;
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
    const double factor = options.momentum();
    // The new buffer is factor·old + (1−dampening)·gradient, or, in the first step, the gradient;
    // Nesterov's step adds the gradient to factor times the new buffer.
    double fresh = 1;
    for (const at::Tensor& parameter : group.params()) {
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (factor == 0 || state == optimizer.state().end()) continue;
      const at::Tensor buffer =
          static_cast<const torch::optim::SGDParamState&>(*state->second).momentum_buffer();
      if (!buffer.defined()) continue;
      result.buffers.emplace_back(parameter, buffer);
      fresh = 1 - options.dampening();
      result.carried = std::max(result.carried, options.nesterov() ? factor * factor : factor);
    }
    taken = std::max(taken, options.nesterov() ? 1 + factor * fresh : fresh);
  }
  if (taken > 0) result.taken = taken;
  return result;
}

}  // namespace spdkfac
