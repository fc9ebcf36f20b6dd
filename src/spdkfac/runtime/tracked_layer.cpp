// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/tracked_layer.h"

#include <map>
#include <set>

#include <fmt/format.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace spdkfac {
namespace {

struct Parameters {
  at::Tensor weight;
  at::Tensor bias;
  std::int64_t groups = 1;
};

Parameters covered_parameters(const torch::nn::Module& module) {
  if (const auto* conv = module.as<torch::nn::Conv2dImpl>())
    return {conv->weight, conv->bias, conv->options.groups()};
  if (const auto* linear = module.as<torch::nn::LinearImpl>())
    return {linear->weight, linear->bias};
  return {};
}

// The modules that hold the one of this name, and itself; the root has no name.
std::vector<const torch::nn::Module*> around(
    const std::string& name, const std::map<std::string, const torch::nn::Module*>& modules) {
  std::vector<const torch::nn::Module*> found;
  for (const auto& [outer, module] : modules) {
    if (outer.empty() || name == outer || name.starts_with(outer + ".")) found.push_back(module);
  }
  return found;
}

}  // namespace

std::vector<TrackedLayer> tracked_layers(torch::nn::Module& model,
                                         std::vector<std::string>* uncovered) {
  std::vector<TrackedLayer> layers;
  std::set<const void*> seen;
  std::map<std::string, const torch::nn::Module*> with_buffers;
  const auto visit = [&](const std::string& name, torch::nn::Module& module) {
    if (!module.buffers(/*recurse=*/false).empty()) {
      with_buffers[&module == &model ? "" : name] = &module;
    }
    const Parameters found = covered_parameters(module);
    if (!found.weight.defined()) {
      if (uncovered && !module.parameters(/*recurse=*/false).empty()) {
        uncovered->push_back(fmt::format("{} ({})", name, module.name()));
      }
    } else if (seen.insert(found.weight.unsafeGetTensorImpl()).second) {
      layers.push_back({.name = name,
                        .weight = found.weight,
                        .bias = found.bias,
                        .groups = found.groups,
                        .training = [&module] { return module.is_training(); },
                        .buffers =
                            [modules = around(name, with_buffers)] {
                              std::vector<at::Tensor> all;
                              for (const torch::nn::Module* one : modules) {
                                for (at::Tensor& own : one->buffers(/*recurse=*/false)) {
                                  all.push_back(std::move(own));
                                }
                              }
                              return all;
                            }});
    }
  };
  // The root is visited apart: named_modules() would take shared ownership of it, which a module on
  // the stack does not have.
  visit(model.name(), model);
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    visit(item.key(), *item.value());
  }
  return layers;
}

std::vector<at::Tensor> own_parameters(const TrackedLayer& layer) {
  if (!layer.bias.defined()) return {layer.weight};
  return {layer.weight, layer.bias};
}

std::vector<at::Tensor> other_parameters(const std::vector<at::Tensor>& parameters,
                                         const std::vector<TrackedLayer>& layers) {
  std::set<const void*> covered;
  for (const TrackedLayer& layer : layers) {
    for (const at::Tensor& own : own_parameters(layer)) covered.insert(own.unsafeGetTensorImpl());
  }
  std::vector<at::Tensor> others;
  for (const at::Tensor& parameter : parameters) {
    if (!covered.contains(parameter.unsafeGetTensorImpl())) others.push_back(parameter);
  }
  return others;
}

}  // namespace spdkfac
