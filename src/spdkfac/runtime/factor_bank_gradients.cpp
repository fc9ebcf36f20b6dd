// SPDX-License-Identifier: Apache-2.0
// What a FactorBank does with gradients.
#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>

#include "spdkfac/kfac/graft.h"
#include "spdkfac/kfac/precondition.h"
#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/kinds/kind.h"

namespace spdkfac::runtime {

std::vector<kfac::GraftedLayer> FactorBank::grafted(const std::vector<std::size_t>& layers) {
  std::vector<kfac::GraftedLayer> result;
  for (const std::size_t index : layers) {
    LayerState& state = states_[index];
    auto& moments = state.factor(FactorSide::kG).moments;
    kfac::GraftedLayer one{{}, moments ? &*moments : nullptr};
    for (const ParameterPart& own : own_parameters(state.layer())) {
      const at::Tensor gradient = own.gradient();
      if (gradient.defined()) one.gradients.push_back(gradient);
    }
    result.push_back(std::move(one));
  }
  return result;
}

template <class Plainly>
std::vector<at::Tensor> FactorBank::with_lengths(const std::vector<std::size_t>& layers,
                                                 Plainly plainly) {
  if (layers.empty()) return {};
  if (options_.solver == Solver::kEkfac) {
    for (const std::size_t layer : layers) observe(layer);
  }
  if (options_.graft == Graft::kNone) return plainly();
  const std::vector<kfac::GraftedLayer> updates = grafted(layers);
  const at::Tensor lengths = kfac::graft_lengths(updates, {options_.graft, options_.graft_adam});
  std::vector<at::Tensor> inner = plainly();
  kfac::set_lengths(updates, lengths);
  return inner;
}

at::Tensor FactorBank::precondition(std::size_t layer) {
  const auto plainly = [&] { return std::vector{precondition_one(layer)}; };
  return with_lengths({layer}, plainly).front();
}

std::vector<at::Tensor> FactorBank::precondition_all(const std::vector<std::size_t>& layers) {
  std::vector<std::size_t> together;
  std::vector<std::size_t> one_by_one;
  for (const std::size_t layer : layers) {
    (goes_together(layer) ? together : one_by_one).push_back(layer);
  }
  const std::vector<at::Tensor> of_these =
      together.empty() ? std::vector<at::Tensor>() : precondition_together(together).unbind();
  const std::vector<at::Tensor> of_others = with_lengths(one_by_one, [&] {
    std::vector<at::Tensor> inner;
    for (const std::size_t layer : one_by_one) inner.push_back(precondition_one(layer));
    return inner;
  });
  std::vector<at::Tensor> inner;
  auto these = of_these.begin();
  auto others = of_others.begin();
  for (const std::size_t layer : layers) {
    const bool is_one = these != of_these.end() &&
                        together[static_cast<std::size_t>(these - of_these.begin())] == layer;
    inner.push_back(is_one ? *these++ : *others++);
  }
  return inner;
}

at::Tensor FactorBank::without_inverses(std::size_t layer) {
  const bool has_moments = options_.graft == Graft::kAdam || options_.solver == Solver::kAdam;
  if (!has_moments) return -squared_gradient(layer);
  for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
    states_[layer].keep(side, true, true);
  }
  return precondition(layer);
}

at::Tensor FactorBank::joined_gradient(std::size_t index, at::Tensor memory) const {
  const TrackedLayer& layer = states_[index].layer();
  const at::Tensor weight = layer.weight_gradient();
  const kfac::WeightLayout layout = kind_of(layer.kind).layout;
  if (!layer.bias.defined() && layout == kfac::WeightLayout::kOutIn && weight.is_contiguous() &&
      weight.dtype() == memory.dtype()) {
    return weight.view(memory.sizes());  // it serves as it is
  }
  kfac::join_gradient(weight, layer.bias_gradient(), memory, layout);
  return memory;
}

at::Tensor FactorBank::precondition_one(std::size_t index) {
  const LayerState& state = states_[index];
  const TrackedLayer& layer = state.layer();
  const StepSpan span(recorder_, StepPart::kPrecondition, layer.weight.device(), "precondition",
                      layer.name, FactorId{index, FactorSide::kA});
  const auto [memory, product, result] = scratch_of(index);
  const at::Tensor joined = joined_gradient(index, memory);
  const PrecisionGuard precise(solving_, layer.weight.device());
  at::Tensor inner;
  if (keeps_basis(options_.solver)) {
    inner = kfac::precondition_in_basis(joined, basis_of(index), basis_rule(), result);
  } else {
    const at::Tensor& inverse_a = state.factor(FactorSide::kA).inverse->value;
    const at::Tensor& inverse_g = state.factor(FactorSide::kG).inverse->value;
    kfac::precondition(joined, inverse_a, inverse_g, product, result);
    inner = kfac::inner_product(joined, inverse_a, inverse_g, result);
  }
  kfac::split_gradient(result, layer.weight_gradient(), layer.bias_gradient(),
                       kind_of(layer.kind).layout);
  return inner;
}

at::Tensor FactorBank::squared_gradient(std::size_t index) const {
  const TrackedLayer& layer = states_[index].layer();
  at::Tensor sum = at::zeros({}, at::device(layer.weight.device()).dtype(at::kDouble));
  for (const ParameterPart& own : own_parameters(layer)) {
    const at::Tensor gradient = own.gradient();
    if (gradient.defined()) sum += gradient.norm().to(at::kDouble).square();
  }
  return sum;
}

at::Tensor FactorBank::precondition_together(const std::vector<std::size_t>& layers) {
  const StepSpan span(recorder_, StepPart::kPrecondition,
                      states_[layers.front()].layer().weight.device(), "precondition");
  std::vector<kfac::PreconditionBatch::Gradients> gradients;
  std::vector<kfac::PreconditionBatch::Task> tasks;
  for (const std::size_t index : layers) {
    const LayerState& state = states_[index];
    const TrackedLayer& layer = state.layer();
    gradients.push_back({layer.weight_gradient(), layer.bias_gradient()});
    tasks.push_back({state.factor(FactorSide::kA).inverse->value,
                     state.factor(FactorSide::kG).inverse->value,
                     kind_of(layer.kind).layout == kfac::WeightLayout::kInOut, layer.bias.defined(),
                     state.factor(FactorSide::kG).moments});
  }
  return batches_.gradients(layers, tasks).run(gradients);
}

bool FactorBank::goes_together(std::size_t index) const {
  if (keeps_basis(options_.solver)) return false;
  const LayerState& state = states_[index];
  const TrackedLayer& layer = state.layer();
  for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
    if (state.factor(side).shape.is_split()) return false;  // one product would not do
  }
  const at::Tensor& inverse_a = state.factor(FactorSide::kA).inverse->value;
  const at::ScalarType type = inverse_a.scalar_type();
  const kfac::WeightLayout layout = kind_of(layer.kind).layout;
  const bool is_matrix = inverse_a.size(0) == 1 && layer.weight.dim() == 2;
  if (layer.frozen_weight || layout == kfac::WeightLayout::kUnits ||
      (layout == kfac::WeightLayout::kInOut && !is_matrix)) {
    return false;
  }
  const at::Tensor bias = layer.bias_gradient();
  // Moments and lengths leave out a bias without a gradient.
  if (options_.graft != Graft::kNone && layer.bias.defined() && !bias.defined()) return false;
  return kfac::PreconditionBatch::takes(layer.weight_gradient(), type) &&
         (!bias.defined() || kfac::PreconditionBatch::takes(bias, type));
}

// Three matrices of the shape of the layer's gradient, in the type of its factors.
std::array<at::Tensor, 3> FactorBank::scratch_of(std::size_t layer) {
  const FactorState& a = states_[layer].factor(FactorSide::kA);
  const FactorState& g = states_[layer].factor(FactorSide::kG);
  const std::array<std::int64_t, 3> shape = {a.shape.groups, g.shape.size, a.shape.size};
  const at::TensorOptions options = a.sum.options();
  const std::int64_t size = c10::multiply_integers(shape);
  std::array<at::Tensor, 3> result;
  for (std::size_t index = 0; index < 3; ++index) {
    at::Tensor& memory = scratch_[index];
    if (!memory.defined() || memory.numel() < size || memory.dtype() != options.dtype() ||
        memory.device() != options.device()) {
      memory = at::empty({size}, options);
    }
    result[index] = memory.narrow(0, 0, size).view(shape);
  }
  return result;
}

}  // namespace spdkfac::runtime
