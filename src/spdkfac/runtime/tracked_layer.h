// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace spdkfac {

// A layer that K-FAC covers, known by its weight: any operator that uses this weight is the layer.
struct TrackedLayer {
  std::string name;
  at::Tensor weight;        // [out, in] or [out, in/groups, kh, kw]
  at::Tensor bias;          // undefined without one
  std::int64_t groups = 1;  // of a convolution
  // Whether forward passes count now: false in evaluation mode.
  std::function<bool()> training = [] { return true; };
  // Sees only some of the examples, as an expert does: its rows are its examples.
  bool partial = false;
  // What the modules around the layer hold beside parameters, as tables of positions.
  std::function<std::vector<at::Tensor>()> buffers = [] { return std::vector<at::Tensor>(); };

  bool convolution() const { return weight.dim() == 4; }
};

// The Conv2d and Linear layers of a model, in the order of its modules; each weight once. Names of
// other modules that hold parameters of their own, as `name (type)`, go to `uncovered` if given.
std::vector<TrackedLayer> tracked_layers(torch::nn::Module& model,
                                         std::vector<std::string>* uncovered = nullptr);

// The layer's weight, and its bias if it has one.
std::vector<at::Tensor> own_parameters(const TrackedLayer& layer);
// Those of `parameters` outside the layers.
std::vector<at::Tensor> other_parameters(const std::vector<at::Tensor>& parameters,
                                         const std::vector<TrackedLayer>& layers);

}  // namespace spdkfac
