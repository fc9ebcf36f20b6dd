// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/tracked_layer.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/runtime/kinds/kind.h"

namespace spdkfac {
namespace {

std::int64_t output_axis(const TrackedLayer& layer) {
  return runtime::kind_of(layer.kind).layout == kfac::WeightLayout::kOutIn ? 0 : 1;
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

std::vector<at::Tensor> buffers_of(const std::vector<const torch::nn::Module*>& modules) {
  std::vector<at::Tensor> all;
  for (const torch::nn::Module* one : modules) {
    for (at::Tensor& own : one->buffers(/*recurse=*/false)) all.push_back(std::move(own));
  }
  return all;
}

bool covers_all(const torch::nn::Module& module, const std::vector<TrackedLayer>& held) {
  const std::vector<at::Tensor> own = module.parameters(/*recurse=*/false);
  return other_parameters(own, held).empty();
}

}  // namespace

at::Tensor ParameterPart::of(const at::Tensor& whole) const {
  return range.all() ? whole : whole.narrow(axis, range.first, range.count);
}

at::Tensor ParameterPart::gradient() const {
  const at::Tensor& whole = parameter.grad();
  return whole.defined() ? of(whole) : at::Tensor();
}

std::vector<std::int64_t> ParameterPart::sizes() const {
  std::vector<std::int64_t> sizes = parameter.sizes().vec();
  if (!range.all()) sizes[static_cast<std::size_t>(axis)] = range.count;
  return sizes;
}

std::int64_t ParameterPart::numel() const { return c10::multiply_integers(sizes()); }

ParameterPart TrackedLayer::weight_part() const { return {weight, outputs, output_axis(*this)}; }

at::Tensor TrackedLayer::weight_gradient() const {
  return frozen_weight ? at::Tensor() : weight_part().gradient();
}

at::Tensor TrackedLayer::bias_gradient() const {
  return bias.defined() ? bias_part().gradient() : at::Tensor();
}

bool TrackedLayer::has_gradient() const {
  return leading().grad().defined() || (shard.defined() && shard.grad().defined());
}

bool TrackedLayer::has_units() const {
  return runtime::kind_of(kind).layout == kfac::WeightLayout::kUnits;
}

std::int64_t TrackedLayer::inputs_of_group() const {
  if (has_units()) return 1;
  if (frozen_weight) return 0;
  return weight.numel() / weight.size(0) / weight.size(1) *
         (output_axis(*this) == 0 ? weight.size(1) : weight.size(0) / groups);
}

std::int64_t TrackedLayer::all_outputs() const {
  if (!outputs.all()) return outputs.count;
  if (has_units()) return weight.numel() * ((frozen_weight ? 0 : 1) + (bias.defined() ? 1 : 0));
  return output_axis(*this) == 0 ? weight.size(0) : weight.size(1) * groups;
}

std::vector<TrackedLayer> tracked_layers(torch::nn::Module& model,
                                         std::vector<std::string>* uncovered, bool norms) {
  std::vector<TrackedLayer> layers;
  std::set<const void*> seen;
  std::map<std::string, const torch::nn::Module*> with_buffers;
  // A table that is the weight of another layer, too, is that layer.
  std::set<const void*> of_others;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    for (const TrackedLayer& one : runtime::layers_of(*module)) {
      if (one.kind != LayerKind::kEmbedding) of_others.insert(one.weight.unsafeGetTensorImpl());
    }
  }
  const auto visit = [&](const std::string& name, torch::nn::Module& module) {
    if (!module.buffers(/*recurse=*/false).empty()) {
      with_buffers[&module == &model ? "" : name] = &module;
    }
    std::vector<TrackedLayer> held = runtime::layers_of(module);
    if (uncovered && !covers_all(module, held)) {
      uncovered->push_back(fmt::format("{} ({})", name, module.name()));
    }
    std::erase_if(held, [&](const TrackedLayer& one) {
      if (one.kind == LayerKind::kNorm && !norms) return true;
      const void* weight = one.weight.unsafeGetTensorImpl();
      return seen.contains(weight) ||
             (one.kind == LayerKind::kEmbedding && of_others.contains(weight));
    });
    for (TrackedLayer& layer : held) {
      seen.insert(layer.weight.unsafeGetTensorImpl());
      layer.name = layer.name.empty() ? name : fmt::format("{}.{}", name, layer.name);
      layer.training = [&module] { return module.is_training(); };
      layer.buffers = [modules = around(name, with_buffers)] { return buffers_of(modules); };
      layers.push_back(std::move(layer));
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

std::vector<TrackedLayer> trained_layers(std::vector<TrackedLayer> layers) {
  for (TrackedLayer& layer : layers) {
    if (layer.bias.defined() && !layer.bias.requires_grad()) layer.bias = at::Tensor();
    layer.frozen_weight = !layer.weight.requires_grad();
  }
  std::erase_if(layers, [](const TrackedLayer& one) {
    return (one.frozen_weight && !one.bias.defined()) || one.weight.numel() == 0;
  });
  if (layers.empty()) {
    throw ConfigError(
        "kfac: the model has no trainable layer that K-FAC covers, such as Linear or Conv2d; pass "
        "a model with one, or train without K-FAC");
  }
  return layers;
}

std::vector<ParameterPart> own_parameters(const TrackedLayer& layer) {
  std::vector<ParameterPart> own;
  if (!layer.frozen_weight) own.push_back(layer.weight_part());
  if (layer.bias.defined()) own.push_back(layer.bias_part());
  return own;
}

std::vector<at::Tensor> other_parameters(const std::vector<at::Tensor>& parameters,
                                         const std::vector<TrackedLayer>& layers) {
  std::set<const void*> covered;
  for (const TrackedLayer& layer : layers) {
    for (const ParameterPart& own : own_parameters(layer)) {
      covered.insert(own.parameter.unsafeGetTensorImpl());
    }
  }
  std::vector<at::Tensor> others;
  for (const at::Tensor& parameter : parameters) {
    if (!covered.contains(parameter.unsafeGetTensorImpl())) others.push_back(parameter);
  }
  return others;
}

}  // namespace spdkfac
