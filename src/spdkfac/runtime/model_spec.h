// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "spdkfac/kfac/factor.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/runtime/factor_shapes.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// Which layers were called, and how, in the order of their first calls.
class CallLog {
 public:
  explicit CallLog(std::size_t layers) : uses_(layers) {}

  void add(std::size_t layer, const kfac::LayerUse& use) {
    if (uses_[layer].empty()) order_.push_back(layer);
    uses_[layer].push_back(use);
  }
  const std::vector<std::size_t>& order() const { return order_; }
  const std::vector<kfac::LayerUse>& uses(std::size_t layer) const { return uses_[layer]; }
  // The same calls with positions as of a batch of this many examples, rounded up.
  CallLog in_batch(std::int64_t examples) const;

 private:
  std::vector<std::vector<kfac::LayerUse>> uses_;
  std::vector<std::size_t> order_;
};

// For each layer the parameters whose gradients its backward pass makes ready: its own, then those
// of no layer that follow in the order of `parameters`; those before the first layer go to it.
std::vector<std::vector<ParameterPart>> parameters_by_layer(
    const std::vector<TrackedLayer>& layers, const std::vector<at::Tensor>& parameters);

// The table of the layers that were called, in the order of their calls.
std::vector<LayerSpec> specs_of_calls(const std::vector<TrackedLayer>& layers, const CallLog& calls,
                                      const std::vector<std::vector<ParameterPart>>& parameters,
                                      const FactorLimit& limit);

}  // namespace spdkfac::runtime
