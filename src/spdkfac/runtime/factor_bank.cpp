// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/factor_bank.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "spdkfac/kfac/drift.h"
#include "spdkfac/kfac/eigenbasis.h"
#include "spdkfac/kfac/precondition.h"
#include "spdkfac/kfac/row_sample.h"
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
      solving_(options.precision == Precision::kFp32 ? Precision::kFp32 : Precision::kTf32),
      incidents_(incidents),
      recorder_(recorder),
      batches_(solving_, {options.graft, options.graft_adam}),
      passes_(options) {
  states_.reserve(layers.size());
  for (const TrackedLayer& layer : layers) states_.emplace_back(layer, options);
}

// Whether a tensor is a parameter, or a buffer of a module around the layer.
std::function<bool(const at::Tensor&)> FactorBank::of_model(
    std::size_t layer, const std::function<bool(const at::Tensor&)>& is_parameter) const {
  return [is_parameter, buffers = states_[layer].layer().buffers()](const at::Tensor& tensor) {
    return is_parameter(tensor) ||
           std::any_of(buffers.begin(), buffers.end(), [&](const at::Tensor& buffer) {
             return buffer.defined() && tensor.is_alias_of(buffer);
           });
  };
}

std::int64_t FactorBank::on_call(std::size_t layer, const kfac::LayerUse& use,
                                 const at::Tensor& input, const at::Tensor& output,
                                 const std::function<bool(const at::Tensor&)>& is_parameter,
                                 bool add_input, bool defer) {
  const bool asked = passes_.asks_for_examples();
  const bool table = asked && !use.lookup && use.rows() > 0 &&
                     Passes::is_table(input, of_model(layer, is_parameter));
  const std::int64_t pass = passes_.on_call(use, input, output, table);
  if (!add_input) return pass;
  const bool doubtful = !use.lookup && use.rows() > 0 &&
                        (!passes_.decided() || use.rows() % passes_.examples(pass) != 0);
  const auto constant_input = [&] {
    return Passes::is_for_all(use, input) ||
           passes_.is_constant(input, of_model(layer, is_parameter));
  };
  const bool constant = table || (doubtful && !asked && constant_input());
  if (table) states_[layer].set_constant();
  if (constant) passes_.set_constant();
  add({layer, FactorSide::kA}, {use, pass, input, constant}, defer);
  return pass;
}

void FactorBank::add(FactorId id, const LayerState::Call& whole, bool defer) {
  LayerState& state = states_[id.layer];
  const kfac::RowSample sample =
      kfac::sample_rows(whole.tensor, whole.use, options_.factor_rows, step_);
  LayerState::Call call = whole;
  call.tensor = sample.tensor;
  call.weight = sample.weight;
  if (defer) return state.defer(id.side, call);
  if (passes_.decided()) add_deferred(id);
  const FactorScope scope(recorder_, state, id, options_);
  if (passes_.decided()) return state.add(id.side, call, passes_);
  // This scale does not depend on the examples, so no input needs to be held.
  const bool at_once = id.side == FactorSide::kA && options_.convention == Convention::kKfc &&
                       options_.sharing == Sharing::kExpand && !call.use.by_example;
  if (at_once) state.add_products(id.side, call, 1);
  if (at_once) call.tensor = at::Tensor();
  state.defer(id.side, call);
}

void FactorBank::add_deferred(FactorId id) {
  LayerState& state = states_[id.layer];
  if (!state.has_deferred(id.side)) return;
  const FactorScope scope(recorder_, state, id, options_);
  state.add_deferred(id.side, passes_);
}

void FactorBank::clear() {
  for (LayerState& state : states_) state.clear();
  passes_.clear();
}

void FactorBank::next_batch() {
  for (LayerState& state : states_) state.next_batch();
  passes_.clear();
}

double FactorBank::scale_of(FactorId id) const {
  return kfac::example_scale(
      options_.convention, id.side,
      {states_[id.layer].factor(id.side).examples, passes_.terms(), options_.loss_reduction});
}

void FactorBank::pack(const std::vector<Packed>& factors, bool timed) {
  if (factors.empty()) return;
  if (!one_.defined()) one_ = at::ones({1, 1}, factors.front().count.options());
  std::vector<kfac::Triangle> triangles;
  for (const Packed& one : factors) {
    const bool captured = states_[one.id.layer].ready() && factor(one.id).summed;
    const double examples = captured ? static_cast<double>(factor(one.id).examples) : 0;
    if (examples > 0) {
      triangles.push_back({factor(one.id).sum, one.triangles, scale_of(one.id) * examples});
    } else {
      at::Tensor(one.triangles).zero_();
    }
    triangles.push_back({one_, one.count, examples});
  }
  const StepSpan span(recorder_, StepPart::kPack, one_.device(), "pack",
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

void FactorBank::average_packed(const std::vector<Packed>& factors) {
  if (factors.empty()) return;
  std::vector<FactorId> ids;
  std::vector<at::Tensor> counts;
  std::vector<kfac::RunningAverage::Addition> additions;
  for (const Packed& one : factors) {
    ids.push_back(one.id);
    counts.push_back(one.count);
    additions.push_back({&*factor(one.id).average, one.triangles, 1, /*packed=*/true, one.count});
  }
  add_to_averages(ids, additions);
  incidents_.absent(described(ids), at::cat(counts).eq(0));
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
  for (const FactorId id : ids) {
    const FactorShape& shape = factor(id).shape;
    factors.push_back({id, kfac::Inverse::flags(shape), shape.size});
  }
  return factors;
}

FactorBank::DampingPair FactorBank::joined_dampings(const std::vector<std::size_t>& layers) const {
  std::vector<kfac::ShapedFactor> means;
  for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
    for (const std::size_t layer : layers) {
      const kfac::RunningAverage& average = *factor({layer, side}).average;
      means.push_back({average.mean(), average.shape()});
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
    const FactorState& state = factor({layer, FactorSide::kA});
    const std::int64_t groups = state.shape.groups;
    const auto of_layer = [&](const at::Tensor& dampings) {
      return dampings.narrow(0, first, groups).to(state.sum.scalar_type());  // layers may differ
    };
    result.emplace_back(of_layer(all.first), of_layer(all.second));
    first += groups;
  }
  return result;
}

std::vector<FactorBank::DampingPair> FactorBank::dampings(
    const std::vector<DampingPair>& means) const {
  if (means.empty()) return {};
  std::vector<at::Tensor> means_a;
  std::vector<at::Tensor> means_g;
  std::vector<std::int64_t> groups;
  for (const auto& [a, g] : means) {
    means_a.push_back(a);
    means_g.push_back(g);
    groups.push_back(a.numel());
  }
  const DampingPair all = kfac::damping_of_means(at::cat(means_a), at::cat(means_g),
                                                 options_.damping_mode, options_.damping);
  const std::vector<at::Tensor> of_a = all.first.split_with_sizes(groups);
  const std::vector<at::Tensor> of_g = all.second.split_with_sizes(groups);
  std::vector<DampingPair> result;
  for (std::size_t i = 0; i < means.size(); ++i) result.emplace_back(of_a[i], of_g[i]);
  return result;
}

void FactorBank::invert(const std::vector<Inversion>& inversions) {
  std::vector<Inversion> together;
  for (const Inversion& one : inversions) {
    const FactorState& state = factor(one.id);
    const bool batched = state.sum.is_cuda() && !keeps_basis(options_.solver);
    if (batched && !kfac::by_elements(state.shape)) {
      together.push_back(one);
    } else {
      invert_one(one);
    }
  }
  if (!together.empty()) invert_together(together);
}

void FactorBank::skip_inverse(FactorId id) {
  if (options_.interval != Refresh::kAdaptive) return;  // its turn is in another step
  const StepSpan span(recorder_, StepPart::kInverse, states_[id.layer].layer().weight.device(),
                      "inverse skipped", name(id.layer));
  incidents_.inverse_skipped();
}

void FactorBank::keep_inverted_diagonals(const StepWork& work) {
  std::vector<at::Tensor> means;
  std::vector<at::Tensor> diagonals;
  for (std::size_t layer = 0; layer < states_.size(); ++layer) {
    if (!states_[layer].ready() || !work.renews(layer)) continue;
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      const FactorState& one = factor({layer, side});
      if (!one.inverted.defined()) continue;
      means.push_back(one.average->mean());
      diagonals.push_back(one.inverted);
    }
  }
  kfac::keep_diagonals(means, diagonals);
}

void FactorBank::invert_all(const std::vector<std::size_t>& all, const StepWork& work) {
  std::vector<std::size_t> layers;
  for (const std::size_t layer : all) {
    if (work.renews(layer)) {
      layers.push_back(layer);
    } else {
      for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) skip_inverse({layer, side});
    }
  }
  if (layers.empty()) return;
  const std::vector<DampingPair> added = dampings(layers);
  std::vector<Inversion> inversions;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    inversions.push_back({{layers[i], FactorSide::kA}, added[i].first});
    inversions.push_back({{layers[i], FactorSide::kG}, added[i].second});
  }
  invert(inversions);
  for (const std::size_t layer : layers) states_[layer].stale = false;
}

void FactorBank::invert_one(const Inversion& inversion) {
  const auto& [id, damping] = inversion;
  FactorState& state = factor(id);
  {
    const StepSpan span(recorder_, StepPart::kInverse, state.sum.device(), "inverse",
                        name(id.layer), id);
    if (keeps_basis(options_.solver)) {
      kfac::refresh_basis(state.average->mean(), *state.inverse);
    } else {
      kfac::refresh_inverse(state.average->mean(), damping, *state.inverse);
    }
  }
  incidents_.inverted(described({id}), state.inverse->failures, state.inverse->kept);
}

void FactorBank::invert_together(const std::vector<Inversion>& inversions) {
  std::vector<FactorId> ids;
  std::vector<kfac::InverseBatch::Task> tasks;
  std::vector<at::Tensor> dampings;
  for (const auto& [id, damping] : inversions) {
    FactorState& state = factor(id);
    ids.push_back(id);
    tasks.push_back({state.average->mean(), &*state.inverse});
    dampings.push_back(kfac::for_matrices(damping, state.shape));
  }
  kfac::InverseBatch& batch = batches_.inverses(ids, tasks);
  {
    const bool single = ids.size() == 1;
    StepSpan span(recorder_, StepPart::kInverse, dampings.front().device(),
                  single ? "inverse" : "inverses",
                  single ? name(ids.front().layer) : std::string());
    if (recorder_.on()) span.set_shares(shares_by_arithmetic(ids));
    batch.refresh(at::cat(dampings));
    for (const auto& [id, damping] : inversions) {
      kfac::invert_zero_blocks(factor(id).average->mean(), damping, *factor(id).inverse);
    }
  }
  incidents_.inverted(described(ids), batch.failures(), batch.kept());
}

// Those that are inverted together, each with its part of the arithmetic.
std::vector<StepEvent::Share> FactorBank::shares_by_arithmetic(
    const std::vector<FactorId>& ids) const {
  std::vector<StepEvent::Share> shares;
  double all = 0;
  for (const FactorId id : ids) {
    const FactorShape& shape = factor(id).shape;
    const double cube = static_cast<double>(shape.matrices()) * std::pow(shape.dim(), 3);
    shares.push_back({id, cube});
    all += cube;
  }
  for (StepEvent::Share& one : shares) one.part /= all;
  return shares;
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
      memory.inverses += bytes_of(factor.inverted);
      if (!factor.inverse) continue;
      memory.inverses += bytes_of(factor.inverse->value) + bytes_of(factor.inverse->eigenvalues);
      if (const auto& moments = factor.moments) {
        memory.inverses += bytes_of(moments->first) + bytes_of(moments->second);
      }
      if (const auto& moments = factor.basis_moments) {
        memory.inverses += bytes_of(moments->first) + bytes_of(moments->second);
      }
    }
  }
  return memory;
}

}  // namespace spdkfac::runtime
