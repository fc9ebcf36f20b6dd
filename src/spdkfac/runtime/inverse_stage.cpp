// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/inverse_stage.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "spdkfac/kfac/inverse.h"

namespace spdkfac::runtime {
namespace {

// The two halves of a double as elements of a message, and back.
void write_inner(const at::Tensor& inner, at::Tensor slot) {
  if (slot.scalar_type() == at::kDouble) {
    slot.zero_();
    slot.narrow(0, 0, 1).copy_(inner);
  } else {
    slot.copy_(inner.reshape({1}).view(at::kFloat));
  }
}

at::Tensor read_inner(const at::Tensor& slot) {
  if (slot.scalar_type() == at::kDouble) return slot[0].clone();
  return slot.clone().view(at::kDouble)[0];
}

Member means_of(int layer) { return {TensorKind::kDiagonalMeans, layer}; }

}  // namespace

InverseStage::InverseStage(FactorBank& bank, MessageLauncher& launcher,
                           const LayerGradients& gradients, StepRecorder& recorder, int rank)
    : bank_(bank), launcher_(launcher), gradients_(gradients), recorder_(recorder), rank_(rank) {}

void InverseStage::run(const PlannedStep& step, const StepWork& work,
                       const std::vector<std::size_t>& layers, std::vector<at::Tensor>& inner) {
  const bool inverts = step.plan().step == StepKind::kFull;
  if (inverts) exchange_means(step);
  if (inverts && step.broadcasts().empty()) return bank_.invert_all(layers, work);
  invert_and_send(step, work, inner);
  for (std::size_t i = 0; i < step.broadcasts().size(); ++i) {
    if (!skips(step, work, i)) take_in(step, i, inner);
  }
}

void InverseStage::exchange_means(const PlannedStep& step) {
  for (std::size_t index = 0; index < step.messages().size(); ++index) {
    const Message& message = step.messages()[index];
    if (!is_means(message)) continue;
    for (const Member& member : message.members) launcher_.slot(member).zero_();
    for (const FactorPlacement& factor : step.plan().placements) {
      const Member member = means_of(factor.layer);
      // Of a factor that all keep, the first rank speaks.
      if (!step.contains(member) || rank_ != factor.owner.value_or(0)) continue;
      const FactorState& state =
          bank_.state(step.order().tracked(factor.layer)).factor(factor.side);
      const std::int64_t groups = state.shape.groups;
      launcher_.slot(member)
          .narrow(0, factor.side == FactorSide::kA ? 0 : groups, groups)
          .copy_(kfac::mean_diagonal({state.average->mean(), state.shape}));
    }
    launcher_.send(index);
    launcher_.wait(index);
  }
}

InverseStage::Dampings InverseStage::dampings(const PlannedStep& step, const StepWork& work) const {
  std::set<int> layers;
  for (const FactorPlacement& factor : step.plan().placements) {
    if (mine(factor) && work.renews(step.order().factor_of(factor).layer)) {
      layers.insert(factor.layer);
    }
  }
  // Of some, messages have brought the means; of the others this rank keeps both averages.
  std::vector<int> order;
  std::vector<FactorBank::DampingPair> sent;
  for (const int layer : layers) {
    if (!step.contains(means_of(layer))) continue;
    order.push_back(layer);
    const std::vector<at::Tensor> sides = launcher_.slot(means_of(layer)).chunk(2);
    sent.emplace_back(sides[0], sides[1]);
  }
  std::vector<FactorBank::DampingPair> all = bank_.dampings(sent);
  std::vector<std::size_t> kept;
  for (const int layer : layers) {
    if (step.contains(means_of(layer))) continue;
    order.push_back(layer);
    kept.push_back(step.order().tracked(layer));
  }
  for (FactorBank::DampingPair& one : bank_.dampings(kept)) all.push_back(std::move(one));
  Dampings result;
  for (std::size_t i = 0; i < order.size(); ++i) result.emplace(order[i], std::move(all[i]));
  return result;
}

bool InverseStage::skips(const PlannedStep& step, const StepWork& work,
                         std::size_t broadcast) const {
  const ResultBroadcast& what = step.broadcasts()[broadcast];
  return !what.gradients &&
         !work.renews(step.order().factor_of(step.plan().placements[what.last]).layer);
}

void InverseStage::invert_and_send(const PlannedStep& step, const StepWork& work,
                                   std::vector<at::Tensor>& inner) {
  const Plan& plan = step.plan();
  const bool inverts = plan.step == StepKind::kFull;
  Dampings added;
  if (inverts) added = dampings(step, work);
  std::vector<FactorBank::Inversion> rest;  // that nobody waits for: a GPU does them at once
  const auto invert = [&](const FactorPlacement& factor) {
    if (!mine(factor)) return;
    const FactorId id = step.order().factor_of(factor);
    if (!work.renews(id.layer)) return bank_.skip_inverse(id);
    const auto& [a, g] = added.at(factor.layer);
    const FactorBank::Inversion one{id, factor.side == FactorSide::kA ? a : g};
    if (one.damping.is_cuda() && !factor.owner) {
      rest.push_back(one);
    } else {
      bank_.invert({one});
    }
  };
  // As in the published code, Seq-Dist broadcasts only after all inversions. Steps in which these
  // are timed also wait for what owners precondition.
  const bool inverses_first =
      plan.options.placement == PlacementKind::kSequential || launcher_.defers();
  if (inverts && inverses_first)
    std::for_each(plan.placements.begin(), plan.placements.end(), invert);
  std::size_t next = 0;
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    if (inverts && !inverses_first) invert(plan.placements[i]);
    if (next == step.broadcasts().size() || step.broadcasts()[next].last != i) continue;
    if (const std::size_t broadcast = next++; !skips(step, work, broadcast)) {
      if (step.broadcasts()[broadcast].root == rank_) fill(step, broadcast, inner);
      launcher_.broadcast(broadcast);
    }
  }
  launcher_.launch_broadcasts();
  bank_.invert(rest);
}

void InverseStage::fill(const PlannedStep& step, std::size_t broadcast,
                        std::vector<at::Tensor>& inner) {
  const ResultBroadcast& what = step.broadcasts()[broadcast];
  if (!what.gradients) {
    const auto [layer, side] = step.order().factor_of(step.plan().placements[what.last]);
    return bank_.write_inverse({layer, side}, launcher_.broadcast_buffer(broadcast));
  }
  for (const Part& part : parts_of(step, broadcast)) {
    inner[part.layer] = bank_.precondition(part.layer);
    gradients_.write(part.layer, part.gradients);
    write_inner(inner[part.layer], part.inner);
  }
}

void InverseStage::take_in(const PlannedStep& step, std::size_t broadcast,
                           std::vector<at::Tensor>& inner) {
  const ResultBroadcast& what = step.broadcasts()[broadcast];
  launcher_.wait_for_broadcast(broadcast);
  if (what.root == rank_) return;
  if (!what.gradients) {
    const auto [layer, side] = step.order().factor_of(step.plan().placements[what.last]);
    const at::Tensor buffer = launcher_.broadcast_buffer(broadcast);
    const StepSpan span(recorder_, StepPart::kUnpack, buffer.device(), "unpack inverse",
                        bank_.name(layer));
    return bank_.read_inverse({layer, side}, buffer);
  }
  for (const Part& part : parts_of(step, broadcast)) {
    gradients_.read(part.layer, part.gradients, 1);
    inner[part.layer] = read_inner(part.inner);
  }
}

std::vector<InverseStage::Part> InverseStage::parts_of(const PlannedStep& step,
                                                       std::size_t broadcast) const {
  const ResultBroadcast& what = step.broadcasts()[broadcast];
  const at::Tensor buffer = launcher_.broadcast_buffer(broadcast);
  const std::vector<int> layers = layers_of(what, step.plan());
  std::int64_t inner = what.elements - kInnerElements * static_cast<std::int64_t>(layers.size());
  std::int64_t offset = 0;
  std::vector<Part> parts;
  for (const int planned : layers) {
    const std::size_t layer = step.order().tracked(planned);
    const std::int64_t elements = gradients_.elements(layer);
    parts.push_back(
        {layer, buffer.narrow(0, offset, elements), buffer.narrow(0, inner, kInnerElements)});
    offset += elements;
    inner += kInnerElements;
  }
  return parts;
}

}  // namespace spdkfac::runtime
