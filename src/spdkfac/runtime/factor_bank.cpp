// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/factor_bank.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include "spdkfac/kfac/precondition.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac {
namespace {

const char* side_name(FactorSide side) { return side == FactorSide::kA ? "A" : "G"; }

const char* average_name(FactorSide side) {
  return side == FactorSide::kA ? "average A" : "average G";
}

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
  // The forward pass may be under autocast; factors are not for it to round.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const PrecisionGuard precise(options_.precision);
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

void FactorBank::pack(const std::vector<Packed>& factors, bool profiled) {
  std::vector<Triangle> triangles;
  for (const Packed& one : factors) {
    const auto [layer, side] = one.id;
    if (!states_[layer].ready() || !factor(one.id).summed) {
      at::Tensor(one.triangles).fill_(std::numeric_limits<double>::quiet_NaN());
    } else {
      triangles.push_back({factor(one.id).sum, one.triangles, scale_of(one.id)});
    }
  }
  if (triangles.empty()) return;
  const at::Device device = triangles.front().packed.device();
  const StepTrace::Span span(trace_, Category::kFactorComp, "pack",
                             states_[factors.front().id.layer].layer().name, device);
  std::optional<TimeMark> begin;
  if (profile_ && profiled) begin = TimeMark::now(device);
  pack_upper(triangles);
  if (begin) {
    const FactorId last = factors.back().id;
    profile_->factor_computed(last.layer, last.side, std::move(*begin), TimeMark::now(device));
  }
}

void FactorBank::average(const std::vector<FactorId>& ids) {
  std::vector<RunningAverage::Addition> additions;
  for (const FactorId id : ids) {
    additions.push_back({&*factor(id).average, factor(id).sum, scale_of(id)});
  }
  add_to_averages(ids, additions);
}

void FactorBank::average_packed(const std::vector<Packed>& factors, int world) {
  std::vector<FactorId> ids;
  std::vector<RunningAverage::Addition> additions;
  for (const Packed& one : factors) {
    ids.push_back(one.id);
    additions.push_back({&*factor(one.id).average, one.triangles, 1.0 / world, /*packed=*/true});
  }
  add_to_averages(ids, additions);
}

// On a GPU all at once.
void FactorBank::add_to_averages(const std::vector<FactorId>& ids,
                                 const std::vector<RunningAverage::Addition>& additions) {
  if (ids.empty()) return;
  const at::Device device = additions.front().sum.device();
  if (device.is_cuda()) {
    const StepTrace::Span span(trace_, Category::kFactorComp, "average", "", device);
    return note_averages(ids, RunningAverage::add_all(additions));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const StepTrace::Span span(trace_, Category::kFactorComp, average_name(ids[i].side),
                               states_[ids[i].layer].layer().name, device);
    note_averages({ids[i]}, RunningAverage::add_all({additions[i]}));
  }
}

std::string FactorBank::text_of(FactorId id) const {
  const LayerState& state = states_[id.layer];
  return fmt::format("factor {} of layer {} (dimension {})", side_name(id.side), state.layer().name,
                     state.factor(id.side).dim());
}

void FactorBank::note_averages(const std::vector<FactorId>& ids, const at::Tensor& finite) {
  for (const FactorId id : ids) states_[id.layer].stale = true;
  counters_.factor_updates += static_cast<std::int64_t>(ids.size());
  events_.note(
      finite.logical_not(),
      [this, ids, step = counters_.steps](std::size_t index) {
        return EventLog::Message{
            fmt::format("factor {}", text_of(ids[index])),
            fmt::format("kfac: {} has a NaN or an infinity and was left out at step {}{}; said "
                        "once, see the counters",
                        text_of(ids[index]), step, place_)};
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

FactorBank::DampingPair FactorBank::joined_dampings(const std::vector<std::size_t>& layers) const {
  std::vector<at::Tensor> means;
  for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
    for (const std::size_t layer : layers) {
      means.push_back(factor({layer, side}).average->mean());
    }
  }
  // A layer has as many groups on both sides.
  const std::vector<at::Tensor> halves = diagonal_means(means).chunk(2);
  return damping_of_means(halves[0], halves[1], options_.damping_mode, options_.damping);
}

std::vector<FactorBank::DampingPair> FactorBank::dampings(
    const std::vector<std::size_t>& layers) const {
  if (layers.empty()) return {};
  const DampingPair all = joined_dampings(layers);
  std::vector<DampingPair> result;
  std::int64_t first = 0;
  for (const std::size_t layer : layers) {
    const at::Tensor& sum = factor({layer, FactorSide::kA}).sum;
    const auto of_layer = [&](const at::Tensor& dampings) {
      return dampings.narrow(0, first, sum.size(0)).to(sum.scalar_type());  // layers may differ
    };
    result.emplace_back(of_layer(all.first), of_layer(all.second));
    first += sum.size(0);
  }
  return result;
}

std::vector<FactorBank::DampingPair> FactorBank::dampings(const at::Tensor& means_a,
                                                          const at::Tensor& means_g) const {
  const DampingPair all =
      damping_of_means(means_a, means_g, options_.damping_mode, options_.damping);
  std::vector<DampingPair> result;
  for (std::int64_t layer = 0; layer < means_a.size(0); ++layer) {
    result.emplace_back(all.first.narrow(0, layer, 1), all.second.narrow(0, layer, 1));
  }
  return result;
}

void FactorBank::invert(const std::vector<Inversion>& inversions) {
  if (inversions.empty()) return;
  if (factor(inversions.front().id).sum.is_cuda()) {
    std::vector<FactorId> ids;
    std::vector<at::Tensor> dampings;
    for (const Inversion& one : inversions) {
      ids.push_back(one.id);
      dampings.push_back(one.damping);
    }
    return invert_together(ids, at::cat(dampings));
  }
  for (const auto& [id, damping] : inversions) {
    FactorState& state = factor(id);
    const StepTrace::Span span(trace_, Category::kInverseComp, "inverse",
                               states_[id.layer].layer().name, at::kCPU);
    std::optional<TimeMark> begin;
    if (profile_) begin = TimeMark::now(at::kCPU);
    refresh_inverse(state.average->mean(), damping, *state.inverse);
    if (begin)
      profile_->inverted({{id.layer, id.side}}, std::move(*begin), TimeMark::now(at::kCPU));
    note_inverses({id}, state.inverse->failures, state.inverse->kept);
  }
}

void FactorBank::invert_all(std::vector<std::size_t> layers) {
  if (layers.empty()) return;
  if (states_[layers.front()].layer().weight.is_cuda()) {
    std::vector<FactorId> ids;
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      for (const std::size_t layer : layers) ids.push_back({layer, side});
    }
    const auto [damping_a, damping_g] = joined_dampings(layers);
    invert_together(ids, at::cat({damping_a, damping_g}));
  } else {
    const std::vector<DampingPair> added = dampings(layers);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      invert({{{layers[i], FactorSide::kA}, added[i].first},
              {{layers[i], FactorSide::kG}, added[i].second}});
    }
  }
  for (const std::size_t layer : layers) states_[layer].stale = false;
}

void FactorBank::invert_together(const std::vector<FactorId>& ids, const at::Tensor& dampings) {
  const std::string name = ids.size() == 1 ? states_[ids.front().layer].layer().name : "";
  const StepTrace::Span span(trace_, Category::kInverseComp,
                             ids.size() == 1 ? "inverse" : "inverses", name,
                             factor(ids.front()).sum.device());
  InverseBatch& batch = batch_of(ids);
  const at::Device device = dampings.device();
  std::optional<TimeMark> begin;
  if (profile_) begin = TimeMark::now(device);
  batch.refresh(dampings);
  if (begin) profile_->inverted(parts_by_arithmetic(ids), std::move(*begin), TimeMark::now(device));
  note_inverses(ids, batch.failures(), batch.kept());
}

// Those that are inverted together, each with its part of the arithmetic.
std::vector<LayerProfile::Inverted> FactorBank::parts_by_arithmetic(
    const std::vector<FactorId>& ids) {
  std::vector<LayerProfile::Inverted> parts;
  double all = 0;
  for (const FactorId id : ids) {
    const at::Tensor& sum = factor(id).sum;
    const double cube = static_cast<double>(sum.size(0)) * std::pow(sum.size(-1), 3);
    parts.push_back({id.layer, id.side, cube});
    all += cube;
  }
  for (LayerProfile::Inverted& one : parts) one.part /= all;
  return parts;
}

InverseBatch& FactorBank::batch_of(const std::vector<FactorId>& ids) {
  std::vector<const void*> places;
  std::vector<InverseBatch::Task> tasks;
  for (const FactorId id : ids) {
    FactorState& state = factor(id);
    tasks.push_back({state.average->mean(), &*state.inverse});
    places.push_back(tasks.back().factor.const_data_ptr());
    places.push_back(state.inverse->value.const_data_ptr());
  }
  for (KnownBatch& known : batches_) {
    if (known.ids != ids) continue;
    if (known.places != places) {
      known.batch = InverseBatch(tasks, solving_precision());
      known.places = std::move(places);
    }
    return known.batch;
  }
  batches_.push_back({ids, std::move(places), InverseBatch(tasks, solving_precision())});
  return batches_.back().batch;
}

Precision FactorBank::solving_precision() const {
  return options_.precision == Precision::kFp32 ? Precision::kFp32 : Precision::kTf32;
}

void FactorBank::note_inverses(const std::vector<FactorId>& ids, const at::Tensor& failures,
                               const at::Tensor& kept) {
  counters_.inverse_updates += static_cast<std::int64_t>(ids.size());
  std::vector<FactorId> of_element;
  for (const FactorId id : ids) {
    of_element.insert(of_element.end(), static_cast<std::size_t>(factor(id).sum.size(0)), id);
  }
  events_.note(
      failures,
      [this, of_element, step = counters_.steps](std::size_t index) {
        const std::string text = text_of(of_element[index]);
        return EventLog::Message{
            fmt::format("inverse {}", text),
            fmt::format("kfac: {} could not be inverted with {} damping {} at step {}{} and is "
                        "tried with ten times as much; said once, see the counters",
                        text, damping_names()[static_cast<std::size_t>(options_.damping_mode)],
                        options_.damping, step, place_)};
      },
      [this](std::int64_t times) { counters_.inverse_retries += times; });
  events_.note(
      kept,
      [this, of_element, step = counters_.steps](std::size_t index) {
        const std::string text = text_of(of_element[index]);
        return EventLog::Message{
            fmt::format("inverse {} kept", text),
            fmt::format("kfac: {} keeps its previous inverse at step {}{}; said once, see the "
                        "counters",
                        text, step, place_)};
      },
      [this](std::int64_t times) { counters_.inverses_kept += times; });
}

at::Tensor FactorBank::precondition(std::size_t index) {
  const LayerState& state = states_[index];
  const TrackedLayer& layer = state.layer();
  const at::Device device = layer.weight.device();
  const StepTrace::Span span(trace_, Category::kPrecondition, "precondition", layer.name, device);
  std::optional<TimeMark> begin;
  if (profile_) begin = TimeMark::now(device);
  const at::Tensor weight = layer.weight.grad();
  const at::Tensor bias = layer.bias.defined() ? layer.bias.grad() : at::Tensor();
  const at::Tensor& inverse_a = state.factor(FactorSide::kA).inverse->value;
  const at::Tensor& inverse_g = state.factor(FactorSide::kG).inverse->value;
  const std::array<std::int64_t, 3> shape = {inverse_a.size(0), inverse_g.size(1),
                                             inverse_a.size(1)};
  auto [joined, product, result] = scratch(shape, inverse_a.options());
  if (!layer.bias.defined() && weight.is_contiguous() && weight.dtype() == joined.dtype()) {
    joined = weight.view(shape);  // it serves as it is
  } else {
    if (layer.bias.defined() && !bias.defined()) joined.zero_();  // a frozen bias
    join_gradient(weight, bias, joined);
  }
  const PrecisionGuard precise(solving_precision());
  spdkfac::precondition(joined, inverse_a, inverse_g, product, result);
  const at::Tensor inner = at::dot(joined.view({-1}), result.view({-1}));
  split_gradient(result, weight, bias);
  if (begin) profile_->preconditioned(index, std::move(*begin), TimeMark::now(device));
  return inner;
}

std::vector<at::Tensor> FactorBank::precondition_all(const std::vector<std::size_t>& layers) {
  const bool together =
      !layers.empty() && std::all_of(layers.begin(), layers.end(),
                                     [&](std::size_t one) { return goes_together(one); });
  if (!together) {
    std::vector<at::Tensor> inner;
    for (const std::size_t layer : layers) inner.push_back(precondition(layer));
    return inner;
  }
  const StepTrace::Span span(trace_, Category::kPrecondition, "precondition", "",
                             states_[layers.front()].layer().weight.device());
  std::vector<PreconditionBatch::Gradients> gradients;
  for (const std::size_t index : layers) {
    const TrackedLayer& layer = states_[index].layer();
    gradients.push_back(
        {layer.weight.grad(), layer.bias.defined() ? layer.bias.grad() : at::Tensor()});
  }
  return {gradients_of(layers).run(gradients)};
}

bool FactorBank::goes_together(std::size_t index) const {
  const LayerState& state = states_[index];
  const TrackedLayer& layer = state.layer();
  const at::ScalarType type = state.factor(FactorSide::kA).inverse->value.scalar_type();
  const auto fits = [&](const at::Tensor& gradient) {
    return PreconditionBatch::takes(gradient, type);
  };
  return fits(layer.weight.grad()) &&
         (!layer.bias.defined() || !layer.bias.grad().defined() || fits(layer.bias.grad()));
}

PreconditionBatch& FactorBank::gradients_of(const std::vector<std::size_t>& layers) {
  std::vector<const void*> places;
  std::vector<PreconditionBatch::Task> tasks;
  for (const std::size_t layer : layers) {
    const LayerState& state = states_[layer];
    tasks.push_back(
        {state.factor(FactorSide::kA).inverse->value, state.factor(FactorSide::kG).inverse->value});
    places.push_back(tasks.back().inverse_a.const_data_ptr());
    places.push_back(tasks.back().inverse_g.const_data_ptr());
  }
  if (!gradients_ || gradients_->layers != layers || gradients_->places != places) {
    gradients_.reset();  // its memory first
    gradients_.emplace(
        KnownGradients{layers, std::move(places), PreconditionBatch(tasks, solving_precision())});
  }
  return gradients_->batch;
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
  for (const KnownBatch& known : batches_) memory.buffers += known.batch.buffer_bytes();
  if (gradients_) memory.buffers += gradients_->batch.buffer_bytes();
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
