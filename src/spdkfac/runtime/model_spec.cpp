// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/model_spec.h"

#include <map>
#include <set>

namespace spdkfac::runtime {
namespace {

// Multiplications and additions of a factor of one example.
Flops factor_flops(const FactorShape& shape, std::int64_t positions) {
  const auto dim = static_cast<double>(shape.dim());
  return Flops(2 * dim * dim * static_cast<double>(shape.matrices() * positions));
}

LayerSpec spec_of_uses(const TrackedLayer& layer, const std::vector<kfac::LayerUse>& uses,
                       const FactorLimit& limit) {
  const FactorShape a = factor_shape(layer, FactorSide::kA, limit);
  const FactorShape g = factor_shape(layer, FactorSide::kG, limit);
  LayerSpec spec;
  spec.name = layer.name;
  spec.kind = layer.kind;
  spec.bias = layer.bias.defined() && !layer.frozen_weight;  // else it is the only tensor
  spec.d_a = a.size;
  spec.d_g = g.size;
  spec.groups = layer.groups;
  spec.blocks_a = a.blocks;
  spec.blocks_g = g.blocks;
  spec.positions = 0;
  for (const kfac::LayerUse& use : uses) spec.positions += use.positions;
  const auto products = static_cast<double>(layer.inputs_of_group() * layer.all_outputs());
  spec.flops = LayerFlops{.forward = Flops(2 * products * static_cast<double>(spec.positions)),
                          .factor_a = factor_flops(a, spec.positions),
                          .factor_g = factor_flops(g, spec.positions)};
  return spec;
}

}  // namespace

CallLog CallLog::in_batch(std::int64_t examples) const {
  CallLog log = *this;
  for (std::vector<kfac::LayerUse>& uses : log.uses_) {
    for (kfac::LayerUse& use : uses) {
      use.positions = (use.rows() + examples - 1) / examples;
      use.examples = examples;
    }
  }
  return log;
}

std::vector<std::vector<ParameterPart>> parameters_by_layer(
    const std::vector<TrackedLayer>& layers, const std::vector<at::Tensor>& parameters) {
  std::vector<std::vector<ParameterPart>> result;
  if (layers.empty()) return result;
  // The last layer of each parameter: what follows it in the order goes there.
  std::map<const void*, std::size_t> layer_of;
  std::set<const void*> seen;
  for (const TrackedLayer& layer : layers) {
    result.push_back(own_parameters(layer));
    for (const ParameterPart& own : result.back()) {
      layer_of[own.parameter.unsafeGetTensorImpl()] = result.size() - 1;
    }
  }
  std::size_t current = 0;
  for (const at::Tensor& parameter : parameters) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    const auto found = layer_of.find(parameter.unsafeGetTensorImpl());
    if (found == layer_of.end()) {
      result[current].emplace_back(parameter);
    } else if (layers[found->second].leading().is_same(parameter)) {
      current = found->second;
    }
  }
  return result;
}

std::vector<LayerSpec> specs_of_calls(const std::vector<TrackedLayer>& layers, const CallLog& calls,
                                      const std::vector<std::vector<ParameterPart>>& parameters,
                                      const FactorLimit& limit) {
  std::vector<LayerSpec> specs;
  for (const std::size_t layer : calls.order()) {
    specs.push_back(spec_of_uses(layers[layer], calls.uses(layer), limit));
    for (const ParameterPart& parameter : parameters[layer]) {
      specs.back().gradients.push_back(parameter.numel());
    }
  }
  return specs;
}

}  // namespace spdkfac::runtime
