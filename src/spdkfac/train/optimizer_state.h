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

using Optimizers = std::vector<torch::optim::Optimizer*>;  // each with parameters of its own

// What SGD, Adam or AdamW remember of each parameter, as `PARAMETER.KEY`; nothing before the first
// step.
NamedTensors optimizer_tensors(const Optimizers& optimizers, const NamedTensors& parameters);

// The same as what these optimizers hold, on the devices of the parameters. A parameter has all of
// its tensors or none; what is missing, unknown or of another shape is a ConfigError.
struct LoadedState {
  torch::optim::Optimizer* optimizer;
  void* parameter;
  std::unique_ptr<torch::optim::OptimizerParamState> state;
};
using OptimizerStates = std::vector<LoadedState>;
OptimizerStates optimizer_states(const std::map<std::string, at::Tensor>& tensors,
                                 const std::string& where, const NamedTensors& parameters,
                                 const Optimizers& optimizers);
// Replaces what the optimizers hold.
void put_states(OptimizerStates states, const Optimizers& optimizers);

}  // namespace spdkfac::train
