// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/model_spec.h"

#include <set>

#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac::runtime {
namespace {

LayerSpec spec_of_uses(const TrackedLayer& layer, const std::vector<kfac::LayerUse>& uses,
                       const std::string& where) {
  LayerSpec spec;
  spec.name = layer.name;
  spec.kind = layer.convolution() ? LayerKind::kConv2d : LayerKind::kLinear;
  spec.bias = layer.bias.defined();
  spec.d_a = layer.weight[0].numel() + (spec.bias ? 1 : 0);
  spec.d_g = layer.weight.size(0);
  spec.positions = 0;
  for (const kfac::LayerUse& use : uses) {
    if (use.groups() > 1) {
      throw ConfigError(fmt::format(
          "{}: layer {} has {} groups; layer tables do not support grouped convolutions yet", where,
          layer.name, use.groups()));
    }
    spec.positions += use.positions;
  }
  const auto d_in = static_cast<double>(layer.weight[0].numel());
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

std::vector<std::vector<at::Tensor>> parameters_by_layer(
    const std::vector<TrackedLayer>& layers, const std::vector<at::Tensor>& parameters) {
  std::vector<std::vector<at::Tensor>> result(layers.size());
  if (layers.empty()) return result;
  std::set<const void*> seen;
  std::vector<at::Tensor> leading;
  std::vector<at::Tensor>* current = &leading;
  for (const at::Tensor& parameter : parameters) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    for (std::size_t index = 0; index < layers.size(); ++index) {
      if (layers[index].weight.is_same(parameter)) current = &result[index];
    }
    current->push_back(parameter);
  }
  result.front().insert(result.front().end(), leading.begin(), leading.end());
  return result;
}

std::vector<LayerSpec> specs_of_calls(const std::vector<TrackedLayer>& layers, const CallLog& calls,
                                      const std::vector<std::vector<at::Tensor>>& parameters,
                                      const std::string& where) {
  std::vector<LayerSpec> specs;
  for (const std::size_t layer : calls.order()) {
    specs.push_back(spec_of_uses(layers[layer], calls.uses(layer), where));
    for (const at::Tensor& parameter : parameters[layer]) {
      specs.back().gradients.push_back(parameter.numel());
    }
  }
  return specs;
}

}  // namespace spdkfac::runtime
