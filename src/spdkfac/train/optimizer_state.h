// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

namespace spdkfac::train {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// What SGD or Adam remembers of each parameter, as `PARAMETER.KEY`; nothing before its first step.
NamedTensors optimizer_tensors(const torch::optim::Optimizer& optimizer,
                               const NamedTensors& parameters);

// The same as what an optimizer of this kind holds, on the devices of the parameters. A parameter
// has all of its tensors or none; what is missing, unknown or of another shape is a ConfigError.
using OptimizerStates =
    std::vector<std::pair<void*, std::unique_ptr<torch::optim::OptimizerParamState>>>;
OptimizerStates optimizer_states(const std::map<std::string, at::Tensor>& tensors,
                                 const std::string& where, const NamedTensors& parameters,
                                 const torch::optim::Optimizer& optimizer);
// Replaces what the optimizer holds.
void put_states(OptimizerStates states, torch::optim::Optimizer& optimizer);

}  // namespace spdkfac::train
