// SPDX-License-Identifier: Apache-2.0
// Norms: what is normalised times γ, plus β. Each unit, such as a channel, has a γ and a β of its
// own; G is the 2×2 matrix of their gradients for each unit, and A is 1.
#include <limits>
#include <set>
#include <string>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include "spdkfac/runtime/capture_registry.h"
#include "spdkfac/runtime/kinds/kind.h"

namespace spdkfac::runtime {
namespace {

namespace nn = torch::nn;
using Parameter = const std::optional<at::Tensor>&;

template <class Module>
void add_norm_of(const nn::Module& module, std::vector<TrackedLayer>& layers) {
  const auto* norm = module.as<Module>();
  if (norm == nullptr || !norm->weight.defined()) return;
  layers.push_back(
      {.name = "", .weight = norm->weight, .bias = norm->bias, .kind = LayerKind::kNorm});
}

std::vector<TrackedLayer> norm_layers(const nn::Module& module) {
  std::vector<TrackedLayer> layers;
  add_norm_of<nn::LayerNormImpl>(module, layers);
  add_norm_of<nn::GroupNormImpl>(module, layers);
  add_norm_of<nn::BatchNorm1dImpl>(module, layers);
  add_norm_of<nn::BatchNorm2dImpl>(module, layers);
  add_norm_of<nn::BatchNorm3dImpl>(module, layers);
  add_norm_of<nn::InstanceNorm1dImpl>(module, layers);
  add_norm_of<nn::InstanceNorm2dImpl>(module, layers);
  add_norm_of<nn::InstanceNorm3dImpl>(module, layers);
  return layers;
}

bool is_wanted(Parameter weight) {
  return c10::GradMode::is_enabled() && weight && weight->defined() && is_watched(*weight);
}

void observe_norm(const kfac::NormCall& call, const at::Tensor& weight, const at::Tensor& output) {
  const auto match = [&](const TrackedLayer& layer) -> std::optional<LayerCall> {
    if (layer.kind != LayerKind::kNorm || layer.weight.numel() != weight.numel()) {
      return std::nullopt;
    }
    return LayerCall{.input = call.input, .norm = call};
  };
  observe({call.input, weight, output, /*convolution=*/false, /*of_others=*/false}, match);
}

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef shape, Parameter weight,
                      Parameter bias, double eps, bool cudnn) {
  const CaptureOff off;
  at::Tensor output = at::layer_norm_symint(input, shape, weight, bias, eps, cudnn);
  if (!is_wanted(weight)) return output;
  const auto units = C10_AS_INTARRAYREF_SLOW(shape).vec();
  observe_norm(
      {.input = input,
       .normalized = [units,
                      eps](const at::Tensor& x) { return at::layer_norm(x, units, {}, {}, eps); },
       .unit_dimensions = static_cast<std::int64_t>(units.size())},
      *weight, output);
  return output;
}

at::Tensor rms_norm(const at::Tensor& input, c10::SymIntArrayRef shape, Parameter weight,
                    std::optional<double> eps) {
  const CaptureOff off;
  at::Tensor output = at::rms_norm_symint(input, shape, weight, eps);
  if (!is_wanted(weight)) return output;
  const auto units = C10_AS_INTARRAYREF_SLOW(shape).vec();
  // The default is that of the input's type.
  const double epsilon =
      eps.value_or(input.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                      : std::numeric_limits<float>::epsilon());
  observe_norm(
      {.input = input,
       .normalized = [units,
                      epsilon](const at::Tensor& x) { return at::rms_norm(x, units, {}, epsilon); },
       .unit_dimensions = static_cast<std::int64_t>(units.size())},
      *weight, output);
  return output;
}

at::Tensor group_norm(const at::Tensor& input, std::int64_t groups, Parameter weight,
                      Parameter bias, double eps, bool cudnn) {
  const CaptureOff off;
  at::Tensor output = at::group_norm(input, groups, weight, bias, eps, cudnn);
  if (!is_wanted(weight)) return output;
  observe_norm(
      {.input = input,
       .normalized = [groups,
                      eps](const at::Tensor& x) { return at::group_norm(x, groups, {}, {}, eps); },
       .channels_first = true},
      *weight, output);
  return output;
}

// Statistics of the batch, or those that the module has kept.
struct KeptStatistics {
  at::Tensor mean;
  at::Tensor var;

  KeptStatistics(Parameter running_mean, Parameter running_var, bool of_batch) {
    if (of_batch) return;
    mean = running_mean.value_or(at::Tensor());
    var = running_var.value_or(at::Tensor());
  }
};

at::Tensor batch_norm(const at::Tensor& input, Parameter weight, Parameter bias,
                      Parameter running_mean, Parameter running_var, bool training, double momentum,
                      double eps, bool cudnn) {
  const CaptureOff off;
  at::Tensor output = at::batch_norm(input, weight, bias, running_mean, running_var, training,
                                     momentum, eps, cudnn);
  if (!is_wanted(weight)) return output;
  const KeptStatistics kept(running_mean, running_var, training);
  observe_norm({.input = input,
                .normalized =
                    [kept, training, eps](const at::Tensor& x) {
                      return at::batch_norm(x, {}, {}, kept.mean, kept.var, training, 0, eps,
                                            false);
                    },
                .channels_first = true},
               *weight, output);
  return output;
}

at::Tensor instance_norm(const at::Tensor& input, Parameter weight, Parameter bias,
                         Parameter running_mean, Parameter running_var, bool of_input,
                         double momentum, double eps, bool cudnn) {
  const CaptureOff off;
  at::Tensor output = at::instance_norm(input, weight, bias, running_mean, running_var, of_input,
                                        momentum, eps, cudnn);
  if (!is_wanted(weight)) return output;
  const KeptStatistics kept(running_mean, running_var, of_input);
  observe_norm({.input = input,
                .normalized =
                    [kept, of_input, eps](const at::Tensor& x) {
                      return at::instance_norm(x, {}, {}, kept.mean, kept.var, of_input, 0, eps,
                                               false);
                    },
                .channels_first = true},
               *weight, output);
  return output;
}

// --- norms that are written out: γ times what is normalised ---

// The parameter that a tensor is: in another type or shape, or with a number added to it.
std::optional<at::Tensor> parameter_of(const at::Tensor& tensor) {
  static const std::set<std::string, std::less<>> kept = {
      "AddBackward0",        "ReshapeAliasBackward0", "ToCopyBackward0",
      "UnsafeViewBackward0", "UnsqueezeBackward0",    "ViewBackward0"};
  if (is_watched(tensor)) return tensor;
  for (const torch::autograd::Node* node = tensor.grad_fn().get(); node != nullptr;
       node = node->next_edge(0).function.get()) {
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
      return is_watched(leaf->variable) ? std::optional(leaf->variable) : std::nullopt;
    }
    const auto inputs = node->num_outputs();  // edges to what the node was made of
    const bool alone = inputs == 1 || (inputs > 1 && !node->next_edge(1).is_valid());  // a number
    if (!kept.contains(node->name()) || !alone) return std::nullopt;
  }
  return std::nullopt;
}

// Of a tensor that a compiler traces with.
bool is_symbolic(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// The units that a factor of a product has: its last dimension, or one that only dimensions of one
// element follow.
struct FactorUnits {
  std::int64_t count = 0;   // 0: it has no units
  std::int64_t behind = 0;  // dimensions that follow
};

FactorUnits units_of(const at::Tensor& factor, const at::Tensor& other) {
  if (factor.dim() == 0 || factor.dim() > other.dim() || is_symbolic(factor) ||
      is_symbolic(other)) {
    return {};
  }
  FactorUnits units{factor.numel(), 0};
  while (units.behind + 1 < factor.dim() && factor.size(-1 - units.behind) == 1) ++units.behind;
  const std::int64_t axis = -1 - units.behind;
  const bool alone = factor.size(axis) == units.count && other.size(axis) == units.count;
  // Behind the units there may be positions only if they are dimension 1.
  return alone && (units.behind == 0 || other.dim() + axis == 1) ? units : FactorUnits{};
}

void observe_product_with(const at::Tensor& factor, const at::Tensor& other,
                          const at::Tensor& output) {
  const FactorUnits units = units_of(factor, other);
  if (units.count == 0) return;
  const std::optional<at::Tensor> weight = parameter_of(factor);
  if (!weight) return;
  observe_norm({.input = other,
                .normalized = [](const at::Tensor& x) { return x; },
                .channels_first = units.behind > 0},
               *weight, output);
}

at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  const CaptureOff off;
  at::Tensor output = at::mul(self, other);
  if (!c10::GradMode::is_enabled() || !output.requires_grad()) return output;
  observe_product_with(self, other, output);
  observe_product_with(other, self, output);
  return output;
}

void install_norms(torch::Library& operators) {
  operators.impl("layer_norm", layer_norm);
  operators.impl("rms_norm", rms_norm);
  operators.impl("group_norm", group_norm);
  operators.impl("batch_norm", batch_norm);
  operators.impl("instance_norm", instance_norm);
  operators.impl("mul.Tensor", mul);
}

}  // namespace

KindFile norm_kinds() {
  return {{{.kind = LayerKind::kNorm, .layout = kfac::WeightLayout::kUnits}},
          norm_layers,
          install_norms};
}

}  // namespace spdkfac::runtime
