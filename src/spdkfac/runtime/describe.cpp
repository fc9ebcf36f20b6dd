// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/describe.h"

#include <memory>
#include <optional>
#include <set>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/runtime/capture.h"

namespace spdkfac {
namespace {

// Notes which layers a forward pass calls, in their order.
class Observer : public CaptureSink {
 public:
  explicit Observer(std::size_t layers) : uses(layers) {}

  bool wants(std::size_t) override { return true; }

  std::function<void(const at::Tensor&)> on_call(std::size_t layer, const LayerUse& use,
                                                 const at::Tensor&, const at::Tensor&) override {
    if (uses[layer].empty()) order.push_back(layer);
    uses[layer].push_back(use);
    return {};
  }

  std::vector<std::vector<LayerUse>> uses;
  std::vector<std::size_t> order;
};

LayerSpec layer_spec(const TrackedLayer& layer, const std::vector<LayerUse>& uses) {
  LayerSpec spec;
  spec.name = layer.name;
  spec.kind = layer.convolution() ? LayerKind::kConv2d : LayerKind::kLinear;
  spec.bias = layer.bias.defined();
  spec.d_a = layer.weight[0].numel() + (spec.bias ? 1 : 0);
  spec.d_g = layer.weight.size(0);
  spec.positions = 0;
  for (const LayerUse& use : uses) {
    if (use.groups() > 1) {
      throw ConfigError(
          fmt::format("describe: layer {} has {} groups; layer tables cannot hold grouped "
                      "convolutions yet",
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

// Gradients of parameters outside the layers go to the layer before them in the order of modules;
// those before the first layer to it.
void share_out_gradients(torch::nn::Module& model, const std::vector<TrackedLayer>& tracked,
                         std::vector<LayerSpec*> specs) {
  std::set<const void*> seen;
  std::vector<std::int64_t> leading;
  LayerSpec* current = nullptr;
  for (const at::Tensor& parameter : model.parameters()) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    for (std::size_t index = 0; index < tracked.size(); ++index) {
      if (tracked[index].weight.is_same(parameter)) current = specs[index];
    }
    (current ? current->gradients : leading).push_back(parameter.numel());
  }
  if (current)
    specs.front()->gradients.insert(specs.front()->gradients.end(), leading.begin(), leading.end());
}

// Batch statistics change in a forward pass; they are put back.
std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

void restore(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& values) {
  const c10::NoGradGuard no_grad;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    at::Tensor(tensors[index]).copy_(values[index]);
  }
}

}  // namespace

ModelSpec describe(const std::string& name, torch::nn::Module& model,
                   const std::function<at::Tensor(at::Tensor)>& forward, std::int64_t batch,
                   const std::vector<std::int64_t>& input) {
  const std::vector<TrackedLayer> tracked = tracked_layers(model);
  const auto observer = std::make_shared<Observer>(tracked.size());
  // Two examples: batch statistics need more than one value.
  std::vector<std::int64_t> shape = {2};
  shape.insert(shape.end(), input.begin(), input.end());
  const std::vector<at::Tensor> buffers = copies(model.buffers());
  {
    const Capture capture(tracked, observer);
    const c10::AutoGradMode with_gradients(true);
    forward(at::zeros(shape, tracked.empty() ? at::TensorOptions()
                                             : tracked[0].weight.options().requires_grad(false)));
  }
  restore(model.buffers(), buffers);
  ModelSpec spec{.name = name, .batch = batch, .input = input, .parameters = 0, .layers = {}};
  for (const std::size_t layer : observer->order) {
    spec.layers.push_back(layer_spec(tracked[layer], observer->uses[layer]));
  }
  if (spec.layers.size() != tracked.size()) {
    throw ConfigError(
        fmt::format("describe: the forward pass calls {} of {} Conv2d and Linear layers; "
                    "is the model in training mode?",
                    spec.layers.size(), tracked.size()));
  }
  std::vector<LayerSpec*> by_module(tracked.size());
  for (std::size_t position = 0; position < observer->order.size(); ++position) {
    by_module[observer->order[position]] = &spec.layers[position];
  }
  share_out_gradients(model, tracked, by_module);
  for (const LayerSpec& layer : spec.layers) spec.parameters += layer.gradient_elements();
  return spec;
}

}  // namespace spdkfac
