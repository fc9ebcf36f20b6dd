// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/describe.h"

#include <algorithm>
#include <memory>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/runtime/capture.h"
#include "spdkfac/runtime/model_spec.h"

namespace spdkfac {
namespace {

class Observer : public runtime::CaptureSink {
 public:
  explicit Observer(std::size_t layers) : calls(layers) {}

  bool wants(std::size_t) override { return true; }

  std::function<void(const at::Tensor&)> on_call(std::size_t layer, const kfac::LayerUse& use,
                                                 const at::Tensor&, const at::Tensor&) override {
    calls.add(layer, use);
    return {};
  }

  runtime::CallLog calls;
};

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
                   const std::vector<std::int64_t>& input, const FactorLimit& limit, bool norms) {
  const std::vector<TrackedLayer> tracked = tracked_layers(model, nullptr, norms);
  // Two examples: batch statistics need more than one value.
  std::vector<std::int64_t> shape = {2};
  shape.insert(shape.end(), input.begin(), input.end());
  const std::vector<at::Tensor> buffers = copies(model.buffers());
  ModelSpec spec = describe(
      name, tracked, model.parameters(),
      [&] {
        forward(at::zeros(shape, tracked.empty()
                                     ? at::TensorOptions()
                                     : tracked[0].weight.options().requires_grad(false)));
      },
      batch, input, limit);
  restore(model.buffers(), buffers);
  return spec;
}

ModelSpec describe(const std::string& name, const std::vector<TrackedLayer>& tracked,
                   const std::vector<at::Tensor>& parameters, const std::function<void()>& forward,
                   std::int64_t batch, const std::vector<std::int64_t>& input,
                   const FactorLimit& limit) {
  const auto observer = std::make_shared<Observer>(tracked.size());
  {
    const runtime::Capture capture(tracked, observer);
    const c10::AutoGradMode with_gradients(true);
    forward();
  }
  ModelSpec spec{.name = name, .batch = batch, .input = input, .parameters = 0, .layers = {}};
  const std::size_t called = observer->calls.order().size();
  if (called != tracked.size()) {
    throw ConfigError(
        fmt::format("describe: the forward pass calls only {} of {} covered layers; put the "
                    "model into training mode",
                    called, tracked.size()));
  }
  // The examples of the first call are those of all.
  const runtime::CallLog& calls = observer->calls;
  const std::int64_t examples =
      calls.order().empty() ? 1 : calls.uses(calls.order().front()).front().examples;
  spec.layers =
      runtime::specs_of_calls(tracked, calls.in_batch(std::max<std::int64_t>(1, examples)),
                              runtime::parameters_by_layer(tracked, parameters), limit);
  for (const LayerSpec& layer : spec.layers) spec.parameters += layer.gradient_elements();
  return spec;
}

}  // namespace spdkfac
