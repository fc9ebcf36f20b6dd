// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "spdkfac/kfac/modes.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac {

// The layer table of any model, for plan and simulate: runs `forward` once on two examples of shape
// `input` [channels, height, width] and watches. Layers stand in the order of the forward pass. A
// layer used more than once is listed where it was used first, with the work of all uses. Factors
// above the limit are in blocks or diagonal.
ModelSpec describe(const std::string& name, torch::nn::Module& model,
                   const std::function<at::Tensor(at::Tensor)>& forward, std::int64_t batch,
                   const std::vector<std::int64_t>& input, const FactorLimit& limit = {},
                   bool norms = false);

// Likewise for layers of any origin: `forward` runs the model once, in training mode. Of the
// model's `parameters`, those outside the layers count with the layer before them.
ModelSpec describe(const std::string& name, const std::vector<TrackedLayer>& layers,
                   const std::vector<at::Tensor>& parameters, const std::function<void()>& forward,
                   std::int64_t batch, const std::vector<std::int64_t>& input,
                   const FactorLimit& limit = {});

}  // namespace spdkfac
