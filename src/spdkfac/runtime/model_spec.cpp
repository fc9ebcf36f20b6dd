// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/model_spec.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac::runtime {
namespace {

LayerSpec spec_of_uses(const TrackedLayer& layer, const std::vector<kfac::LayerUse>& uses,
                       const std::string& where) {
  LayerSpec spec;
  spec.name = layer.name;
  spec.kind = layer.kind;
  spec.bias = layer.bias.defined() && !layer.frozen_weight;  // else it is the only tensor
  spec.d_a = layer.d_a(1);
  spec.d_g = layer.d_g(1);
  spec.positions = 0;
  for (const kfac::LayerUse& use : uses) {
    if (use.groups() > 1) {
      throw ConfigError(fmt::format(
          "{}: layer {} has {} groups; layer tables do not support grouped convolutions yet", where,
          layer.name, use.groups()));
    }
    spec.positions += use.positions;
  }
  const auto d_in = static_cast<double>(layer.inputs_of(1));
  const auto d_a = static_cast<double>(spec.d_a);
  const auto d_g = static_cast<double>(spec.d_g);
  const auto positions = static_cast<double>(spec.positions);
  spec.flops = LayerFlops{.forward = Flops(2 * d_in * d_g * positions),
                          .factor_a = Flops(2 * d_a * d_a * positions),
                          .factor_g = Flops(2 * d_g * d_g * positions)};
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
                                      const std::string& where) {
  std::vector<LayerSpec> specs;
  for (const std::size_t layer : calls.order()) {
    specs.push_back(spec_of_uses(layers[layer], calls.uses(layer), where));
    for (const ParameterPart& parameter : parameters[layer]) {
      specs.back().gradients.push_back(parameter.numel());
    }
  }
  return specs;
}

}  // namespace spdkfac::runtime
