// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/factor_bank.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/kfac/precondition.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac {
namespace {

const char* side_name(FactorSide side) { return side == FactorSide::kA ? "A" : "G"; }

std::size_t side_index(FactorSide side) { return side == FactorSide::kA ? 0 : 1; }

Bytes bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? Bytes(static_cast<std::int64_t>(tensor.nbytes())) : Bytes();
}

}  // namespace

FactorBank::FactorBank(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
                       std::shared_ptr<spdlog::logger> logger, StepTrace& trace, std::string place)
    : options_(options),
      logger_(std::move(logger)),
      trace_(trace),
      place_(std::move(place)),
      events_(logger_),
      missing_said_(layers.size(), false) {
  states_.reserve(layers.size());
  for (const TrackedLayer& layer : layers) states_.emplace_back(layer, options);
  for (auto& by_layer : held_) by_layer.resize(layers.size());
}

std::int64_t FactorBank::on_call(std::size_t layer, const LayerUse& use, const at::Tensor& input,
                                 const at::Tensor& output, bool hold) {
  const std::int64_t pass = states_[layer].begin_call(use, output);
  const Held call{use, input.detach()};
  if (hold) {
    held_[side_index(FactorSide::kA)][layer].push_back(call);
  } else {
    add({layer, FactorSide::kA}, call);
  }
  return pass;
}

void FactorBank::on_gradient(std::size_t layer, const LayerUse& use, const at::Tensor& gradient,
                             std::int64_t pass, bool hold) {
  states_[layer].begin_gradient(use, pass);
  const Held call{use, gradient.detach()};
  if (hold) {
    held_[side_index(FactorSide::kG)][layer].push_back(call);
  } else {
    add({layer, FactorSide::kG}, call);
  }
}

void FactorBank::add(FactorId id, const Held& call) {
  LayerState& state = states_[id.layer];
  const at::Device device = call.tensor.device();
  const StepTrace::Span span(trace_, Category::kFactorComp, side_name(id.side), state.layer().name,
                             device);
  std::optional<TimeMark> begin;
  if (profile_) begin = TimeMark::now(device);
  if (id.side == FactorSide::kA) {
    state.add_input(call.use, call.tensor);
  } else {
    state.add_gradient(call.use, call.tensor);
  }
  if (begin) {
    profile_->factor_computed(id.layer, id.side, std::move(*begin), TimeMark::now(device));
  }
}

void FactorBank::add_held(FactorId id) {
  for (const Held& call : std::exchange(held_[side_index(id.side)][id.layer], {})) add(id, call);
}

void FactorBank::clear() {
  for (LayerState& state : states_) state.clear();
  for (auto& by_layer : held_) {
    for (std::vector<Held>& calls : by_layer) calls.clear();
  }
}

double FactorBank::scale_of(FactorId id) const {
  return example_scale(options_.convention, id.side, states_[id.layer].factor(id.side).examples);
}

void FactorBank::pack(FactorId id, at::Tensor packed) {
  if (!states_[id.layer].ready() || !factor(id).summed) {
    packed.fill_(std::numeric_limits<double>::quiet_NaN());
    return;
  }
  const StepTrace::Span span(trace_, Category::kFactorComp, "pack", states_[id.layer].layer().name,
                             packed.device());
  pack_upper(factor(id).sum, packed);
  packed.mul_(scale_of(id));
}

void FactorBank::average(FactorId id) {
  const StepTrace::Span span(trace_, Category::kFactorComp,
                             id.side == FactorSide::kA ? "average A" : "average G",
                             states_[id.layer].layer().name, factor(id).sum.device());
  note_average(id, factor(id).average->add(factor(id).sum, scale_of(id)));
}

void FactorBank::average_packed(FactorId id, const at::Tensor& packed, int world) {
  const StepTrace::Span span(trace_, Category::kFactorComp,
                             id.side == FactorSide::kA ? "average A" : "average G",
                             states_[id.layer].layer().name, packed.device());
  note_average(id, factor(id).average->add_packed(packed, 1.0 / world, factor(id).sum));
}

void FactorBank::note_average(FactorId id, const at::Tensor& finite) {
  LayerState& state = states_[id.layer];
  state.stale = true;
  ++counters_.factor_updates;
  events_.note(
      finite.logical_not(),
      [this, &state, side = id.side, dim = factor(id).dim(), step = counters_.steps] {
        return EventLog::Message{
            fmt::format("factor {} {}", side_name(side), state.layer().name),
            fmt::format("kfac: factor {} of layer {} (dimension {}) has a NaN or an infinity and "
                        "was left out at step {}{}; said once, see the counters",
                        side_name(side), state.layer().name, dim, step, place_)};
      },
      [this](std::int64_t times) {
        counters_.nonfinite_factors += times;
        counters_.factor_updates -= times;
      });
}

void FactorBank::note_missing(std::size_t layer) {
  ++counters_.layers_without_factors;
  if (missing_said_[layer]) return;
  missing_said_[layer] = true;
  logger_->warn(
      "kfac: layer {} has a gradient, but no call of it was seen; its last inverses are used if "
      "there are any (was the forward pass on another thread, or in evaluation mode?)",
      states_[layer].layer().name);
}

FactorBank::DampingPair FactorBank::damping(std::size_t layer) const {
  return damping_of(states_[layer].factor(FactorSide::kA).average->mean(),
                    states_[layer].factor(FactorSide::kG).average->mean(), options_.damping_mode,
                    options_.damping);
}

FactorBank::DampingPair FactorBank::damping(const at::Tensor& mean_a,
                                            const at::Tensor& mean_g) const {
  return damping_of_means(mean_a, mean_g, options_.damping_mode, options_.damping);
}

void FactorBank::invert(FactorId id, const DampingPair& damping) {
  FactorState& state = factor(id);
  std::optional<StepTrace::Span> span;
  // Streams side by side have no spans of their own.
  if (state.sum.is_cpu()) {
    span.emplace(trace_, Category::kInverseComp, "inverse", states_[id.layer].layer().name,
                 state.sum.device());
  }
  refresh_inverse(state.average->mean(), id.side == FactorSide::kA ? damping.first : damping.second,
                  *state.inverse);
  note_inverse(id);
}

void FactorBank::invert_all(std::vector<std::size_t> layers) {
  if (layers.empty()) return;
  // The longest first, so that the streams end together.
  const auto largest = [&](std::size_t layer) {
    return std::max(states_[layer].factor(FactorSide::kA).dim(),
                    states_[layer].factor(FactorSide::kG).dim());
  };
  std::stable_sort(layers.begin(), layers.end(), [&](std::size_t left, std::size_t right) {
    return largest(left) > largest(right);
  });
  const at::Device device = states_[layers.front()].layer().weight.device();
  std::optional<StepTrace::Span> all;
  if (!device.is_cpu()) all.emplace(trace_, Category::kInverseComp, "inverses", "", device);
  streams_.run(device, layers.size(), [&](std::size_t index) {
    LayerState& state = states_[layers[index]];
    std::optional<StepTrace::Span> one;
    if (device.is_cpu()) {
      one.emplace(trace_, Category::kInverseComp, "inverse", state.layer().name, device);
    }
    const DampingPair both = damping(layers[index]);
    FactorState& a = state.factor(FactorSide::kA);
    FactorState& g = state.factor(FactorSide::kG);
    refresh_inverse(a.average->mean(), both.first, *a.inverse);
    refresh_inverse(g.average->mean(), both.second, *g.inverse);
  });
  for (const std::size_t layer : layers) {
    note_inverse({layer, FactorSide::kA});
    note_inverse({layer, FactorSide::kG});
    states_[layer].stale = false;
  }
}

void FactorBank::note_inverse(FactorId id) {
  const FactorState& state = factor(id);
  const std::string& layer = states_[id.layer].layer().name;
  ++counters_.inverse_updates;
  events_.note(
      state.inverse->failures,
      [this, &layer, side = id.side, dim = state.dim(), step = counters_.steps] {
        return EventLog::Message{
            fmt::format("inverse {} {}", side_name(side), layer),
            fmt::format("kfac: factor {} of layer {} (dimension {}) could not be inverted with "
                        "{} damping {} at step {}{} and is tried with ten times as much; said "
                        "once, see the counters",
                        side_name(side), layer, dim,
                        damping_names()[static_cast<std::size_t>(options_.damping_mode)],
                        options_.damping, step, place_)};
      },
      [this](std::int64_t times) { counters_.inverse_retries += times; });
  events_.note(
      state.inverse->kept,
      [this, &layer, side = id.side, dim = state.dim(), step = counters_.steps] {
        return EventLog::Message{
            fmt::format("inverse {} {} kept", side_name(side), layer),
            fmt::format("kfac: factor {} of layer {} (dimension {}) keeps its previous inverse at "
                        "step {}{}; said once, see the counters",
                        side_name(side), layer, dim, step, place_)};
      },
      [this](std::int64_t times) { counters_.inverses_kept += times; });
}

at::Tensor FactorBank::precondition(std::size_t index) {
  const LayerState& state = states_[index];
  const TrackedLayer& layer = state.layer();
  const StepTrace::Span span(trace_, Category::kPrecondition, "precondition", layer.name,
                             layer.weight.device());
  const at::Tensor weight = layer.weight.grad();
  const at::Tensor bias = layer.bias.defined() ? layer.bias.grad() : at::Tensor();
  const at::Tensor& inverse_a = state.factor(FactorSide::kA).inverse->value;
  const at::Tensor& inverse_g = state.factor(FactorSide::kG).inverse->value;
  const auto [joined, product, result] =
      scratch({inverse_a.size(0), inverse_g.size(1), inverse_a.size(1)}, inverse_a.options());
  if (layer.bias.defined() && !bias.defined()) joined.zero_();  // a frozen bias
  join_gradient(weight, bias, joined);
  spdkfac::precondition(joined, inverse_a, inverse_g, product, result);
  split_gradient(result, weight, bias);
  return at::dot(joined.view({-1}), result.view({-1})).to(at::kDouble);
}

// Three matrices of the shape, in the type of the factors.
std::array<at::Tensor, 3> FactorBank::scratch(at::IntArrayRef shape,
                                              const at::TensorOptions& options) {
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

KfacMemory FactorBank::memory() const {
  KfacMemory memory;
  for (const at::Tensor& tensor : scratch_) memory.buffers += bytes_of(tensor);
  for (const LayerState& state : states_) {
    if (!state.ready()) continue;
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      const FactorState& factor = state.factor(side);
      memory.buffers += bytes_of(factor.sum);
      if (factor.average) memory.factors += bytes_of(factor.average->mean());
      if (factor.inverse) memory.inverses += bytes_of(factor.inverse->value);
    }
  }
  return memory;
}

}  // namespace spdkfac
