// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/factor_bank.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "spdkfac/kfac/precondition.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac::runtime {
namespace {

const char* side_name(FactorSide side) { return side == FactorSide::kA ? "A" : "G"; }

const char* average_name(FactorSide side) {
  return side == FactorSide::kA ? "average A" : "average G";
}

Bytes bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? Bytes(static_cast<std::int64_t>(tensor.nbytes())) : Bytes();
}

// For inverses and what they are multiplied with.
Precision solving_precision(const KfacOptions& options) {
  return options.precision == Precision::kFp32 ? Precision::kFp32 : Precision::kTf32;
}

// Computes a factor while it lives. The forward pass may be under autocast; factors are not for it
// to round.
class FactorScope {
 public:
  FactorScope(StepRecorder& recorder, const LayerState& state, FactorId id,
              const KfacOptions& options)
      : span_(recorder, StepPart::kFactor, state.layer().weight.device(), side_name(id.side),
              state.layer().name, id),
        no_autocast_(c10::autocast_dispatch_keyset),
        precise_(options.precision, state.layer().weight.device()) {}

 private:
  StepSpan span_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
  PrecisionGuard precise_;
};

}  // namespace

FactorBank::FactorBank(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
                       Incidents& incidents, StepRecorder& recorder)
    : options_(options),
      incidents_(incidents),
      recorder_(recorder),
      batches_(solving_precision(options)) {
  states_.reserve(layers.size());
  for (const TrackedLayer& layer : layers) states_.emplace_back(layer, options);
}

std::int64_t FactorBank::on_call(std::size_t layer, const kfac::LayerUse& use,
                                 const at::Tensor& input, const at::Tensor& output, bool defer) {
  LayerState& state = states_[layer];
  if (defer) return state.add_call(use, input, output, defer);
  const FactorScope scope(recorder_, state, {layer, FactorSide::kA}, options_);
  return state.add_call(use, input, output, defer);
}

void FactorBank::on_gradient(std::size_t layer, const kfac::LayerUse& use,
                             const at::Tensor& gradient, std::int64_t pass, bool defer) {
  LayerState& state = states_[layer];
  if (defer) return state.add_gradient(use, gradient, pass, defer);
  const FactorScope scope(recorder_, state, {layer, FactorSide::kG}, options_);
  state.add_gradient(use, gradient, pass, defer);
}

void FactorBank::add_deferred(FactorId id) {
  LayerState& state = states_[id.layer];
  if (!state.has_deferred(id.side)) return;
  const FactorScope scope(recorder_, state, id, options_);
  state.add_deferred(id.side);
}

void FactorBank::clear() {
  for (LayerState& state : states_) state.clear();
}

double FactorBank::scale_of(FactorId id) const {
  return kfac::example_scale(options_.convention, id.side,
                             states_[id.layer].factor(id.side).examples);
}

void FactorBank::pack(const std::vector<Packed>& factors, bool timed) {
  std::vector<kfac::Triangle> triangles;
  for (const Packed& one : factors) {
    if (!states_[one.id.layer].ready() || !factor(one.id).summed) {
      at::Tensor(one.triangles).fill_(std::numeric_limits<double>::quiet_NaN());
    } else {
      triangles.push_back({factor(one.id).sum, one.triangles, scale_of(one.id)});
    }
  }
  if (triangles.empty()) return;
  const StepSpan span(recorder_, StepPart::kPack, triangles.front().packed.device(), "pack",
                      name(factors.front().id.layer),
                      timed ? std::optional(factors.back().id) : std::nullopt);
  kfac::pack_upper(triangles);
}

void FactorBank::average(const std::vector<FactorId>& ids) {
  std::vector<kfac::RunningAverage::Addition> additions;
  for (const FactorId id : ids) {
    additions.push_back({&*factor(id).average, factor(id).sum, scale_of(id)});
  }
  add_to_averages(ids, additions);
}

void FactorBank::average_packed(const std::vector<Packed>& factors, int world) {
  std::vector<FactorId> ids;
  std::vector<kfac::RunningAverage::Addition> additions;
  for (const Packed& one : factors) {
    ids.push_back(one.id);
    additions.push_back({&*factor(one.id).average, one.triangles, 1.0 / world, /*packed=*/true});
  }
  add_to_averages(ids, additions);
}

// On a GPU all at once.
void FactorBank::add_to_averages(const std::vector<FactorId>& ids,
                                 const std::vector<kfac::RunningAverage::Addition>& additions) {
  if (ids.empty()) return;
  const at::Device device = additions.front().sum.device();
  if (device.is_cuda()) {
    const StepSpan span(recorder_, StepPart::kAverage, device, "average");
    return note_averages(ids, kfac::RunningAverage::add_all(additions));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const StepSpan span(recorder_, StepPart::kAverage, device, average_name(ids[i].side),
                        name(ids[i].layer));
    note_averages({ids[i]}, kfac::RunningAverage::add_all({additions[i]}));
  }
}

void FactorBank::note_averages(const std::vector<FactorId>& ids, const at::Tensor& finite) {
  for (const FactorId id : ids) states_[id.layer].stale = true;
  incidents_.averaged(described(ids), finite);
}

std::vector<Incidents::Factor> FactorBank::described(const std::vector<FactorId>& ids) const {
  std::vector<Incidents::Factor> factors;
  factors.reserve(ids.size());
  for (const FactorId id : ids) factors.push_back({id, factor(id).sum.size(0), factor(id).dim()});
  return factors;
}

FactorBank::DampingPair FactorBank::joined_dampings(const std::vector<std::size_t>& layers) const {
  std::vector<at::Tensor> means;
  for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
    for (const std::size_t layer : layers) {
      means.push_back(factor({layer, side}).average->mean());
    }
  }
  // A layer has as many groups on both sides.
  const std::vector<at::Tensor> halves = kfac::diagonal_means(means).chunk(2);
  return kfac::damping_of_means(halves[0], halves[1], options_.damping_mode, options_.damping);
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
      kfac::damping_of_means(means_a, means_g, options_.damping_mode, options_.damping);
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
    {
      const StepSpan span(recorder_, StepPart::kInverse, at::kCPU, "inverse", name(id.layer), id);
      kfac::refresh_inverse(state.average->mean(), damping, *state.inverse);
    }
    incidents_.inverted(described({id}), state.inverse->failures, state.inverse->kept);
  }
}

void FactorBank::invert_all(const std::vector<std::size_t>& layers) {
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
  std::vector<kfac::InverseBatch::Task> tasks;
  for (const FactorId id : ids) {
    tasks.push_back({factor(id).average->mean(), &*factor(id).inverse});
  }
  kfac::InverseBatch& batch = batches_.inverses(ids, tasks);
  {
    const bool single = ids.size() == 1;
    StepSpan span(recorder_, StepPart::kInverse, dampings.device(), single ? "inverse" : "inverses",
                  single ? name(ids.front().layer) : std::string());
    if (recorder_.on()) span.set_shares(shares_by_arithmetic(ids));
    batch.refresh(dampings);
  }
  incidents_.inverted(described(ids), batch.failures(), batch.kept());
}

// Those that are inverted together, each with its part of the arithmetic.
std::vector<StepEvent::Share> FactorBank::shares_by_arithmetic(
    const std::vector<FactorId>& ids) const {
  std::vector<StepEvent::Share> shares;
  double all = 0;
  for (const FactorId id : ids) {
    const at::Tensor& sum = factor(id).sum;
    const double cube = static_cast<double>(sum.size(0)) * std::pow(sum.size(-1), 3);
    shares.push_back({id, cube});
    all += cube;
  }
  for (StepEvent::Share& one : shares) one.part /= all;
  return shares;
}

at::Tensor FactorBank::precondition(std::size_t index) {
  const LayerState& state = states_[index];
  const TrackedLayer& layer = state.layer();
  const StepSpan span(recorder_, StepPart::kPrecondition, layer.weight.device(), "precondition",
                      layer.name, FactorId{index, FactorSide::kA});
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
    kfac::join_gradient(weight, bias, joined);
  }
  const PrecisionGuard precise(solving_precision(options_), weight.device());
  kfac::precondition(joined, inverse_a, inverse_g, product, result);
  const at::Tensor inner = at::dot(joined.view({-1}), result.view({-1}));
  kfac::split_gradient(result, weight, bias);
  return inner;
}

std::vector<at::Tensor> FactorBank::precondition_all(const std::vector<std::size_t>& layers) {
  const bool together =
      !layers.empty() && std::all_of(layers.begin(), layers.end(),
                                     [&](std::size_t one) { return goes_together(one); });
  if (together) return {precondition_together(layers)};
  std::vector<at::Tensor> inner;
  for (const std::size_t layer : layers) inner.push_back(precondition(layer));
  return inner;
}

at::Tensor FactorBank::precondition_together(const std::vector<std::size_t>& layers) {
  const StepSpan span(recorder_, StepPart::kPrecondition,
                      states_[layers.front()].layer().weight.device(), "precondition");
  std::vector<kfac::PreconditionBatch::Gradients> gradients;
  std::vector<kfac::PreconditionBatch::Task> tasks;
  for (const std::size_t index : layers) {
    const LayerState& state = states_[index];
    const TrackedLayer& layer = state.layer();
    gradients.push_back(
        {layer.weight.grad(), layer.bias.defined() ? layer.bias.grad() : at::Tensor()});
    tasks.push_back(
        {state.factor(FactorSide::kA).inverse->value, state.factor(FactorSide::kG).inverse->value});
  }
  return batches_.gradients(layers, tasks).run(gradients);
}

bool FactorBank::goes_together(std::size_t index) const {
  const LayerState& state = states_[index];
  const TrackedLayer& layer = state.layer();
  const at::ScalarType type = state.factor(FactorSide::kA).inverse->value.scalar_type();
  const auto fits = [&](const at::Tensor& gradient) {
    return kfac::PreconditionBatch::takes(gradient, type);
  };
  return fits(layer.weight.grad()) &&
         (!layer.bias.defined() || !layer.bias.grad().defined() || fits(layer.bias.grad()));
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
  memory.buffers += batches_.buffer_bytes();
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

}  // namespace spdkfac::runtime
