// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "spdkfac/runtime/batch_cache.h"
#include "spdkfac/runtime/factor_id.h"
#include "spdkfac/runtime/incidents.h"
#include "spdkfac/runtime/kfac_counters.h"
#include "spdkfac/runtime/layer_state.h"
#include "spdkfac/runtime/step_recorder.h"
#include "spdkfac/runtime/step_work.h"

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

  Passes& passes() { return passes_; }
  const Passes& passes() const { return passes_; }
  // The number of the step that begins decides which rows factors are made from.
  void begin_step(std::int64_t step) { step_ = step; }
  // A call of a layer in a forward pass; `is_parameter` knows the model's. Returns the pass. With
  // `add` its input becomes part of A, as by add().
  std::int64_t on_call(std::size_t layer, const kfac::LayerUse& use, const at::Tensor& input,
                       const at::Tensor& output,
                       const std::function<bool(const at::Tensor&)>& is_parameter, bool add,
                       bool defer);
  // The input of a call in a pass, or the gradient of its output, becomes part of this batch's
  // factor: at once, or, with `defer` and while examples are not known, in add_deferred().
  void add(FactorId id, const LayerState::Call& whole, bool defer);
  void add_deferred(FactorId id);
  void clear();
  // The next passes add to the same sums.
  void next_batch();

  struct Packed {
    FactorId id;
    at::Tensor triangles;
    at::Tensor count;  // one element
  };
  // This batch's factors times their examples as packed triangles, and these examples, those of a
  // message at once; zeros where one was not captured. `timed`: packing is a part of factor times,
  // and counts as that of the last factor.
  void pack(const std::vector<Packed>& factors, bool timed);
  // Averages in this batch's factors, or what the sums over ranks of all that pack() wrote are. A
  // factor without examples on any rank is left out.
  void average(const std::vector<FactorId>& ids);
  void average_packed(const std::vector<Packed>& factors);

  using DampingPair = std::pair<at::Tensor, at::Tensor>;
  // What the diagonals of both factors get, [groups] each; of many layers at once, because one by
  // one it takes as long as small inversions. From their averages, or from the means of their
  // diagonals, [groups] each.
  std::vector<DampingPair> dampings(const std::vector<std::size_t>& layers) const;
  std::vector<DampingPair> dampings(const std::vector<DampingPair>& means) const;
  struct Inversion {
    FactorId id;
    at::Tensor damping;  // [groups]
  };
  // Side by side where the device can, else in this order.
  void invert(const std::vector<Inversion>& inversions);
  // Both factors of those of these layers that the step renews, side by side where the device can.
  void invert_all(const std::vector<std::size_t>& layers, const StepWork& work);
  // What a broadcast brings of a factor: its inverse as packed triangles, or its eigenvectors.
  void write_inverse(FactorId id, const at::Tensor& buffer) const;
  void read_inverse(FactorId id, const at::Tensor& buffer);
  // Counts and shows that the inverse of a factor is not renewed, with adaptive intervals.
  void skip_inverse(FactorId id);
  // With adaptive intervals: the layers that the step renews have their inverses from here on.
  void keep_inverted_diagonals(const StepWork& work);

  // Replaces the gradients of a layer, or of several, and returns what clipping needs of each
  // (kfac::inner_product). Without inverses a layer keeps its gradients. With grafting their
  // lengths are those of the grafted method.
  at::Tensor precondition(std::size_t layer);
  std::vector<at::Tensor> precondition_all(const std::vector<std::size_t>& layers);

  // The same of a layer that has no inverses on this rank.
  at::Tensor without_inverses(std::size_t layer);
  // Moments that live in eigenvectors follow those that this step has turned.
  void turn_moments();

  KfacMemory memory() const;

 private:
  FactorState& factor(FactorId id) { return states_[id.layer].factor(id.side); }
  const FactorState& factor(FactorId id) const { return states_[id.layer].factor(id.side); }
  std::function<bool(const at::Tensor&)> of_model(
      std::size_t layer, const std::function<bool(const at::Tensor&)>& is_parameter) const;
  double scale_of(FactorId id) const;
  void add_to_averages(const std::vector<FactorId>& ids,
                       const std::vector<kfac::RunningAverage::Addition>& additions);
  void note_averages(const std::vector<FactorId>& ids, const at::Tensor& finite);
  std::vector<Incidents::Factor> described(const std::vector<FactorId>& ids) const;
  // Of the factors A, then G, of these layers, for all groups.
  DampingPair joined_dampings(const std::vector<std::size_t>& layers) const;
  void invert_one(const Inversion& inversion);
  // On a GPU.
  void invert_together(const std::vector<Inversion>& inversions);
  std::vector<StepEvent::Share> shares_by_arithmetic(const std::vector<FactorId>& ids) const;
  at::Tensor precondition_together(const std::vector<std::size_t>& layers);
  at::Tensor precondition_one(std::size_t layer);
  at::Tensor squared_gradient(std::size_t layer) const;  // ‖∇W‖², 0-d in double precision
  // Calls `plainly`, which preconditions these layers; with grafting the grafted method goes before
  // it, and gives the lengths after it.
  template <class Plainly>
  std::vector<at::Tensor> with_lengths(const std::vector<std::size_t>& layers, Plainly plainly);
  std::vector<kfac::GraftedLayer> grafted(const std::vector<std::size_t>& layers);
  bool goes_together(std::size_t layer) const;
  kfac::LayerBasis basis_of(std::size_t layer);
  // Second moments take the gradient in, before grafting replaces it.
  void observe(std::size_t layer);
  kfac::BasisRule basis_rule() const;
  // The layer's gradient as a matrix: itself where it is one, else in the memory.
  at::Tensor joined_gradient(std::size_t layer, at::Tensor memory) const;
  std::array<at::Tensor, 3> scratch_of(std::size_t layer);

  const KfacOptions& options_;
  const Precision solving_;  // of inverses and what they are multiplied with
  Incidents& incidents_;
  StepRecorder& recorder_;
  std::vector<LayerState> states_;
  std::array<at::Tensor, 3> scratch_;  // that all layers share, one after the other
  BatchCache batches_;
  Passes passes_;
  std::int64_t step_ = 0;
  at::Tensor one_;  // 1 x 1, of which counts are multiples
};

}  // namespace spdkfac::runtime
