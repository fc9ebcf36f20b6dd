// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/layer_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <torch/types.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/kfac/example_rows.h"

namespace spdkfac::runtime {

at::TensorOptions factor_options(const at::Tensor& weight) {
  const bool is_double = weight.scalar_type() == at::kDouble;
  return at::TensorOptions().device(weight.device()).dtype(is_double ? at::kDouble : at::kFloat);
}

void FactorState::clear() {
  called = false;
  summed = false;
  examples = 0;
  passes.clear();
}

LayerState::LayerState(TrackedLayer layer, const KfacOptions& options)
    : layer_(std::move(layer)), options_(&options) {}

void LayerState::make_ready_for(const kfac::LayerUse& use) {
  if (use.groups() != layer_.groups) {
    throw ConfigError(
        fmt::format("kfac: layer {} was called with {} groups, but its module has {}; call it as "
                    "its module does, or leave it out (skip_layers=)",
                    layer_.name, use.groups(), layer_.groups));
  }
  make_ready();
}

void LayerState::make_ready() {
  if (ready()) {
    if (a_->sum.device() == layer_.weight.device()) return;
    throw ConfigError(
        fmt::format("kfac: layer {} moved from {} to {} after the first step; create the "
                    "Preconditioner after moving the model",
                    layer_.name, a_->sum.device().str(), layer_.weight.device().str()));
  }
  const auto made = [&](FactorSide side) {
    FactorState state;
    state.shape = shape(side);
    const std::int64_t dim = state.shape.dim();
    state.sum = at::zeros({state.shape.matrices(), dim, dim}, factor_options(layer_.weight));
    return state;
  };
  a_ = made(FactorSide::kA);
  g_ = made(FactorSide::kG);
}

void LayerState::keep(FactorSide side, bool average, bool inverse) {
  if (!ready()) make_ready();  // another rank has called it
  FactorState& state = factor(side);
  if (!average) {
    state.average.reset();
    state.inverted.reset();
  }
  if (!inverse) {
    state.inverse.reset();
    state.moments.reset();
    state.basis_moments.reset();
  }
  const at::Device device = state.sum.device();
  if (average && !state.average) {
    state.average = new_average(side, device);
    state.inverted = new_diagonal(side, device);
  }
  if (inverse && !state.inverse) {
    state.inverse = new_inverse(side, device);
    state.moments = new_moments(side, device);
    state.basis_moments = new_basis_moments(side, device);
  }
}

void LayerState::defer(FactorSide side, const Call& call) {
  make_ready_for(call.use);
  Call& held = deferred(side).emplace_back(call);
  if (held.tensor.defined()) held.tensor = held.tensor.detach();
}

void LayerState::add_deferred(FactorSide side, const Passes& passes) {
  for (const Call& call : std::exchange(deferred(side), {})) add(side, call, passes);
}

void LayerState::add(FactorSide side, const Call& call, const Passes& passes) {
  make_ready_for(call.use);
  FactorState& state = factor(side);
  state.called = true;
  if (call.use.rows() == 0) return;
  const kfac::LayerUse use = use_in_pass(call, passes);
  if (call.tensor.defined()) {
    Call rows = call;
    rows.use = use;
    if (options_->sharing == Sharing::kReduce && use.positions > 1) rows = reduced(side, call, use);
    add_products(side, rows, kfac::position_scale(options_->convention, side, rows.use));
  }
  const bool counted =
      std::find(state.passes.begin(), state.passes.end(), call.pass) != state.passes.end();
  if (!counted) state.passes.push_back(call.pass);
  if (!counted || layer_.partial || constant_) state.examples += use.examples;
}

LayerState::Call LayerState::reduced(FactorSide side, const Call& call, const kfac::LayerUse& use) {
  if (use.lookup) {
    throw ConfigError(fmt::format(
        "curvature: layer {} is a table, which has no reduced factors; pass skip_layers=[\"{}\"], "
        "or approximation=\"expand\"",
        layer_.name, layer_.name));
  }
  const kfac::ExampleRows rows = side == FactorSide::kA
                                     ? kfac::mean_inputs(call.tensor.detach(), use)
                                     : kfac::summed_gradients(call.tensor.detach(), use);
  Call result = call;
  result.tensor = rows.tensor;
  result.use = rows.use;
  return result;
}

void LayerState::add_products(FactorSide side, const Call& call, double scale) {
  make_ready_for(call.use);
  if (call.use.rows() == 0) return;
  FactorState& state = factor(side);
  const auto multiply =
      side == FactorSide::kA ? kfac::add_input_products : kfac::add_gradient_products;
  multiply(call.tensor.detach(), call.use, scale * call.weight, options_->patch_memory, state.sum,
           /*overwrite=*/!state.summed);
  state.summed = true;
}

// Whether one of the first two dimensions of a table's call is that of the examples.
static bool one_of_both(const kfac::LayerUse& use, std::int64_t examples) {
  return use.examples == examples || use.positions == examples;
}

kfac::LayerUse LayerState::use_in_pass(const Call& call, const Passes& passes) {
  const std::int64_t rows = call.use.rows();
  const std::int64_t examples = passes.examples(call.pass);
  if (call.constant && rows % examples != 0) constant_ = true;
  if (call.use.lookup && (call.use.lookup->own_rows || !one_of_both(call.use, examples))) {
    constant_ = true;
  }
  if (layer_.partial || constant_) return call.use.of_examples(rows);
  if (call.use.by_example && (rows % examples == 0 || examples % rows == 0)) {
    kfac::LayerUse use = call.use;  // of which several may have come as one row
    use.examples = examples;
    use.positions = 1;
    use.time_first = passes.time_first();
    return use;
  }
  if (rows % examples == 0) return call.use.of_examples(examples);
  throw ConfigError(fmt::format(
      "kfac: layer {} has {} rows in a pass of {} examples, which do not divide them; set the "
      "number of examples (examples=), leave the layer out (skip_layers=), if it sees only some of "
      "the examples, name it in partial_layers=, or, if an output of an earlier pass that is not "
      "trained on is still held, compute that under torch.no_grad()",
      layer_.name, rows, examples));
}

void LayerState::clear() {
  for (std::vector<Call>& calls : deferred_) calls.clear();
  if (!ready()) return;
  a_->clear();
  g_->clear();
}

void LayerState::next_batch() {
  for (std::vector<Call>& calls : deferred_) calls.clear();
  if (!ready()) return;
  a_->passes.clear();
  g_->passes.clear();
}

kfac::RunningAverage LayerState::new_average(FactorSide side, at::Device device) const {
  return {shape(side), options_->running_average, options_->identity_start,
          factor_options(layer_.weight).device(device)};
}

// Undefined unless intervals adapt.
at::Tensor LayerState::new_diagonal(FactorSide side, at::Device device) const {
  if (options_->interval != Refresh::kAdaptive) return {};
  const FactorShape of = shape(side);
  return at::zeros({of.matrices(), of.dim()}, factor_options(layer_.weight).device(device));
}

kfac::Inverse LayerState::new_inverse(FactorSide side, at::Device device) const {
  return {shape(side), factor_options(layer_.weight).device(device), options_->solver};
}

std::optional<kfac::AdamMoments> LayerState::new_moments(FactorSide side, at::Device device) const {
  if (side == FactorSide::kA || options_->graft != Graft::kAdam) return std::nullopt;
  std::int64_t elements = 0;
  for (const ParameterPart& own : own_parameters(layer_)) elements += own.numel();
  return kfac::AdamMoments(elements, factor_options(layer_.weight).device(device));
}

std::optional<kfac::BasisMoments> LayerState::new_basis_moments(FactorSide side,
                                                                at::Device device) const {
  const Solver solver = options_->solver;
  if (side == FactorSide::kA || !keeps_moments(solver)) return std::nullopt;
  const FactorShape of_a = shape(FactorSide::kA);
  const std::array<std::int64_t, 3> sizes = {of_a.groups, shape(side).size, of_a.size};
  return kfac::BasisMoments(sizes, factor_options(layer_.weight).device(device), solver);
}

void LayerState::forget() {
  clear();
  stale = false;
  refresh = {};
  if (!ready()) return;
  for (FactorState* state : {&*a_, &*g_}) {
    state->average.reset();
    state->inverted.reset();
    state->inverse.reset();
    state->moments.reset();
    state->basis_moments.reset();
  }
}

}  // namespace spdkfac::runtime
