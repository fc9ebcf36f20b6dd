// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "spdkfac/runtime/batch_cache.h"
#include "spdkfac/runtime/factor_id.h"
#include "spdkfac/runtime/incidents.h"
#include "spdkfac/runtime/kfac_counters.h"
#include "spdkfac/runtime/layer_state.h"
#include "spdkfac/runtime/step_recorder.h"

namespace spdkfac::runtime {

// The states of all layers on this rank, and the arithmetic on them: captured calls to factors,
// factors to averages, averages to inverses, gradients to preconditioned ones. Who does what, and
// when, is decided elsewhere.
class FactorBank {
 public:
  FactorBank(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
             Incidents& incidents, StepRecorder& recorder);

  std::size_t size() const { return states_.size(); }
  LayerState& state(std::size_t layer) { return states_[layer]; }
  const LayerState& state(std::size_t layer) const { return states_[layer]; }
  const std::string& name(std::size_t layer) const { return states_[layer].layer().name; }

  // A call of a layer, and the gradient of its output, become part of this batch's factors: at
  // once, or in add_deferred(). on_call returns the pass, for on_gradient.
  std::int64_t on_call(std::size_t layer, const kfac::LayerUse& use, const at::Tensor& input,
                       const at::Tensor& output, bool defer);
  void on_gradient(std::size_t layer, const kfac::LayerUse& use, const at::Tensor& gradient,
                   std::int64_t pass, bool defer);
  void add_deferred(FactorId id);
  void clear();

  struct Packed {
    FactorId id;
    at::Tensor triangles;
  };
  // This batch's factors as packed triangles, those of a message at once; NaN where one was not
  // captured, so that no rank takes it in. `timed`: packing is a part of factor times, and counts
  // as that of the last factor.
  void pack(const std::vector<Packed>& factors, bool timed);
  // Averages in this batch's factors, or the sum of those of `world` ranks.
  void average(const std::vector<FactorId>& ids);
  void average_packed(const std::vector<Packed>& factors, int world);

  using DampingPair = std::pair<at::Tensor, at::Tensor>;
  // What the diagonals of both factors get, [groups] each; of many layers at once, because one by
  // one it takes as long as small inversions. From their averages, or from the means of their
  // diagonals, one value a layer.
  std::vector<DampingPair> dampings(const std::vector<std::size_t>& layers) const;
  std::vector<DampingPair> dampings(const at::Tensor& means_a, const at::Tensor& means_g) const;
  struct Inversion {
    FactorId id;
    at::Tensor damping;  // [groups]
  };
  // Side by side where the device can, else in this order.
  void invert(const std::vector<Inversion>& inversions);
  // Both factors of all these layers, side by side where the device can.
  void invert_all(const std::vector<std::size_t>& layers);

  // Replaces the gradients of a layer and returns ⟨V, ∇W⟩, 0-d; or those of several layers and
  // returns such values whose sum counts.
  at::Tensor precondition(std::size_t layer);
  std::vector<at::Tensor> precondition_all(const std::vector<std::size_t>& layers);

  KfacMemory memory() const;

 private:
  FactorState& factor(FactorId id) { return states_[id.layer].factor(id.side); }
  const FactorState& factor(FactorId id) const { return states_[id.layer].factor(id.side); }
  double scale_of(FactorId id) const;
  void add_to_averages(const std::vector<FactorId>& ids,
                       const std::vector<kfac::RunningAverage::Addition>& additions);
  void note_averages(const std::vector<FactorId>& ids, const at::Tensor& finite);
  std::vector<Incidents::Factor> described(const std::vector<FactorId>& ids) const;
  // Of the factors A, then G, of these layers, for all groups.
  DampingPair joined_dampings(const std::vector<std::size_t>& layers) const;
  void invert_together(const std::vector<FactorId>& ids, const at::Tensor& dampings);
  std::vector<StepEvent::Share> shares_by_arithmetic(const std::vector<FactorId>& ids) const;
  at::Tensor precondition_together(const std::vector<std::size_t>& layers);
  bool goes_together(std::size_t layer) const;
  std::array<at::Tensor, 3> scratch(at::IntArrayRef shape, const at::TensorOptions& options);

  const KfacOptions& options_;
  Incidents& incidents_;
  StepRecorder& recorder_;
  std::vector<LayerState> states_;
  std::array<at::Tensor, 3> scratch_;  // that all layers share, one after the other
  BatchCache batches_;
};

}  // namespace spdkfac::runtime
