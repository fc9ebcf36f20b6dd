// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/inverse_stage.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace spdkfac::sim {
namespace {

bool renews(const std::vector<bool>& renewed, int layer) {
  return renewed.empty() || renewed[static_cast<std::size_t>(layer)];
}

class InverseStage {
 public:
  InverseStage(const StepToSimulate& step, SimulatedRanks& ranks)
      : step_(step),
        plan_(step.plan),
        ranks_(ranks),
        broadcasts_(result_broadcasts(step.plan, step.model)),
        to_workers_(step.costs.broadcast_within(step.grid.workers)),
        to_rows_(step.costs.broadcast_within(step.grid.columns)),
        owners_(step.layers.size()),
        loads_(ranks.streams()) {
    for (const FactorPlacement& factor : plan_.placements) {
      owners_[static_cast<std::size_t>(factor.layer)] = factor.owner;
    }
  }

  std::vector<Seconds> run() {
    ranks_.look_ahead([this] { invert_and_broadcast(); });
    invert_and_broadcast();
    unpack_inverses();
    for (std::size_t stream = 0; stream < ranks_.streams(); ++stream) {
      ranks_.wait_until(stream, ranks_.channel_free(stream));
    }
    if (step_.grid.columns > 1) {
      ranks_.look_ahead([this] { precondition_and_pass_on(); });
      precondition_and_pass_on();
      ranks_.all_wait_until(ranks_.channel_free());
    }
    precondition_everywhere();
    return std::move(loads_);
  }

 private:
  std::uint32_t label(const char* what, const FactorPlacement& factor) {
    return ranks_.label("{} {} {}", what, factor.side == FactorSide::kA ? "A" : "G",
                        step_.layer(factor.layer).name);
  }
  std::uint32_t label(const char* what, int layer) {
    return ranks_.label("{} {}", what, step_.layer(layer).name);
  }
  Seconds precondition_time(int layer) const {
    return step_.layers[static_cast<std::size_t>(layer)].precondition;
  }

  void invert(const FactorPlacement& factor) {
    if (!renews(step_.renewed, factor.layer)) return;
    const Seconds work = step_.layers[static_cast<std::size_t>(factor.layer)].inverse(factor.side);
    const auto name = label("invert", factor);
    const auto on = [&](std::size_t stream) {
      loads_[stream] += ranks_.compute(stream, work, Category::kInverseComp, name);
    };
    if (factor.owner) {
      on(ranks_.stream_of(*factor.owner));
    } else {
      for (std::size_t stream = 0; stream < ranks_.streams(); ++stream) on(stream);
    }
  }

  // Whether what the owner sends inverses to, or preconditions, is the stream's work.
  bool is_worker(std::size_t stream, int owner) const {
    return step_.grid.workers == 1 ? stream == ranks_.stream_of(owner)
                                   : ranks_.column_of(stream) == step_.grid.column_of(owner);
  }

  // Every rank that receives it prepares the same buffer; the broadcast starts when the last has
  // come to it.
  void broadcast_inverse(const ResultBroadcast& step) {
    const FactorPlacement& factor = plan_.placements[step.last];
    const Seconds work =
        step_.host() + step_.costs.overheads.pack_per_element * static_cast<double>(step.elements);
    const auto name = label("pack inverse", factor);
    Seconds ready(0);
    for (std::size_t stream = 0; stream < ranks_.streams(); ++stream) {
      if (!is_worker(stream, step.root)) continue;
      ranks_.compute(stream, work, Category::kInverseComp, name);
      ready = std::max(ready, ranks_.now(stream));
    }
    const Seconds arrived = ranks_.carry(ready, to_workers_.time(step.elements, step.tensors),
                                         Category::kInverseComm, label("broadcast inverse", factor),
                                         step.elements, step_.grid.column_of(step.root));
    if (!ranks_.looks_ahead()) arrivals_.emplace_back(step.last, arrived);
  }

  // The owner has the inverses: it preconditions, and V leaves straight from the gradients.
  void broadcast_gradients(const ResultBroadcast& step) {
    for (std::size_t i = step.first; i <= step.last; i += 2) {
      const int layer = plan_.placements[i].layer;
      ranks_.compute(ranks_.stream_of(step.root), precondition_time(layer), Category::kPrecondition,
                     label("precondition", layer));
    }
    const int layer = plan_.placements[step.last].layer;
    ranks_.compute_everywhere(step_.host(), Category::kPrecondition,
                              label("post gradient of", layer));
    ranks_.carry(ranks_.last(), step_.costs.broadcast.time(step.elements, step.tensors),
                 Category::kInverseComm, label("broadcast gradient of", layer), step.elements);
  }

  void invert_and_broadcast() {
    const bool inverts = plan_.step == StepKind::kFull;
    // As in the published code, Seq-Dist broadcasts only after all inversions.
    const bool inverses_first = plan_.options.placement == PlacementKind::kSequential;
    auto next = broadcasts_.begin();
    if (inverts && inverses_first) {
      for (const FactorPlacement& factor : plan_.placements) invert(factor);
    }
    for (std::size_t i = 0; i < plan_.placements.size(); ++i) {
      if (inverts && !inverses_first) invert(plan_.placements[i]);
      if (next == broadcasts_.end() || next->last != i || is_passed_on(*next)) continue;
      if (next->gradients) {
        broadcast_gradients(*next);
      } else if (leaves(*next, plan_, step_.renewed)) {
        broadcast_inverse(*next);
      }
      ++next;
    }
  }

  // In order of arrival, while later broadcasts still travel.
  void unpack_inverses() {
    for (const auto& [index, arrival] : arrivals_) {
      const FactorPlacement& factor = plan_.placements[index];
      const Seconds work =
          step_.host() + step_.costs.overheads.unpack_per_element *
                             static_cast<double>(factor.result(plan_.options.solver));
      const auto name = label("unpack inverse", factor);
      const std::size_t owner = ranks_.stream_of(*factor.owner);
      for (std::size_t stream = 0; stream < ranks_.streams(); ++stream) {
        if (stream == owner || !is_worker(stream, *factor.owner)) continue;
        ranks_.wait_until(stream, arrival);
        ranks_.compute(stream, work, Category::kInverseComp, name);
      }
    }
  }

  // Of layers whose gradients were all-reduced: behind all inverses, from workers to their rows.
  bool is_passed_on(const ResultBroadcast& step) const {
    return step.gradients && step_.grid.columns > 1;
  }

  std::vector<int> layers_of(const ResultBroadcast& step) const {
    if (plan_.options.exchange != Exchange::kGather) return {plan_.placements[step.last].layer};
    std::vector<int> layers;
    for (const FactorPlacement& factor : plan_.placements) {
      if (factor.owner && factor.side == FactorSide::kG) layers.push_back(factor.layer);
    }
    return layers;
  }

  // A message of all rows leaves when the last worker is done.
  void precondition_and_pass_on() {
    for (const ResultBroadcast& step : broadcasts_) {
      if (!is_passed_on(step)) continue;
      for (const int layer : layers_of(step)) {
        const int owner = owners_[static_cast<std::size_t>(layer)].value();
        const auto name = label("precondition", layer);
        for (std::size_t stream = 0; stream < ranks_.streams(); ++stream) {
          if (!is_worker(stream, owner)) continue;
          ranks_.compute(stream, precondition_time(layer), Category::kPrecondition, name);
        }
      }
      const int layer = plan_.placements[step.last].layer;
      ranks_.compute_everywhere(step_.host(), Category::kPrecondition,
                                label("post gradient of", layer));
      ranks_.carry(ranks_.last(), to_rows_.time(step.elements, step.tensors),
                   Category::kInverseComm, label("broadcast gradient of", layer), step.elements);
    }
  }

  // Layers whose inverses every rank has.
  void precondition_everywhere() {
    const auto sent = layers_sending_gradient(plan_, step_.layers.size());
    for (std::size_t layer = 0; layer < step_.layers.size(); ++layer) {
      if (sent[layer] || (step_.grid.columns > 1 && owners_[layer])) continue;
      const int index = static_cast<int>(layer);
      ranks_.compute_everywhere(precondition_time(index), Category::kPrecondition,
                                label("precondition", index));
    }
  }

  const StepToSimulate& step_;
  const Plan& plan_;
  SimulatedRanks& ranks_;
  const std::vector<ResultBroadcast> broadcasts_;
  const CollectiveCost to_workers_;  // of a layer
  const CollectiveCost to_rows_;
  std::vector<std::optional<int>> owners_;  // of layers; where inverses differ, of the last
  std::vector<Seconds> loads_;
  std::vector<std::pair<std::size_t, Seconds>> arrivals_;  // factor, when its inverse arrived
};

}  // namespace

bool leaves(const ResultBroadcast& broadcast, const Plan& plan, const std::vector<bool>& renewed) {
  return broadcast.gradients || renews(renewed, plan.placements[broadcast.last].layer);
}

std::vector<Seconds> simulate_inverse_stage(const StepToSimulate& step, SimulatedRanks& ranks) {
  return InverseStage(step, ranks).run();
}

}  // namespace spdkfac::sim
