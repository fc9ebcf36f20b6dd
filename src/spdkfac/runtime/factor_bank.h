// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "spdkfac/kfac/inverse_batch.h"
#include "spdkfac/kfac/precondition_batch.h"
#include "spdkfac/runtime/event_log.h"
#include "spdkfac/runtime/kfac_counters.h"
#include "spdkfac/runtime/layer_profile.h"
#include "spdkfac/runtime/layer_state.h"
#include "spdkfac/runtime/step_trace.h"

namespace spdkfac {

// A factor of one of the layers.
struct FactorId {
  std::size_t layer = 0;
  FactorSide side = FactorSide::kA;
  bool operator==(const FactorId&) const = default;
};

// What this rank knows of all layers, and the arithmetic on it: captured calls to factors, factors
// to averages, averages to inverses, gradients to preconditioned ones. Who does what, and when, is
// decided elsewhere.
class FactorBank {
 public:
  // `place` ends messages of the log: " on rank 3", or nothing.
  FactorBank(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
             std::shared_ptr<spdlog::logger> logger, StepTrace& trace, std::string place);

  std::size_t size() const { return states_.size(); }
  LayerState& state(std::size_t layer) { return states_[layer]; }
  const LayerState& state(std::size_t layer) const { return states_[layer]; }
  KfacCounters& counters() { return counters_; }
  EventLog& events() { return events_; }
  // Measures what factors take, from now on; null: no more.
  void set_profile(LayerProfile* profile) { profile_ = profile; }

  // A call of a layer and the gradient of its output become part of this batch's factors, at once
  // or, when held, in add_held().
  std::int64_t on_call(std::size_t layer, const LayerUse& use, const at::Tensor& input,
                       const at::Tensor& output, bool hold);
  void on_gradient(std::size_t layer, const LayerUse& use, const at::Tensor& gradient,
                   std::int64_t pass, bool hold);
  void add_held(FactorId id);
  void clear();

  // This batch's factors as packed triangles, those of a message at once; NaN where one was not
  // captured, so that no rank takes it in.
  struct Packed {
    FactorId id;
    at::Tensor triangles;
  };
  // `profiled`: their time counts as that of the last one, where packing is part of factor times.
  void pack(const std::vector<Packed>& factors, bool profiled);
  // Averages in this batch's factors, or the sum of those of `world` ranks.
  void average(const std::vector<FactorId>& ids);
  void average_packed(const std::vector<Packed>& factors, int world);
  // Says once that a layer with a gradient was not captured.
  void note_missing(std::size_t layer);

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
  void invert_all(std::vector<std::size_t> layers);

  // Replaces the gradients of a layer and returns ⟨V, ∇W⟩, 0-d; or those of several layers and
  // returns such values whose sum counts.
  at::Tensor precondition(std::size_t layer);
  std::vector<at::Tensor> precondition_all(const std::vector<std::size_t>& layers);

  KfacMemory memory() const;

 private:
  struct Held {
    LayerUse use;
    at::Tensor tensor;
  };
  FactorState& factor(FactorId id) { return states_[id.layer].factor(id.side); }
  const FactorState& factor(FactorId id) const { return states_[id.layer].factor(id.side); }
  void add(FactorId id, const Held& call);
  double scale_of(FactorId id) const;
  void add_to_averages(const std::vector<FactorId>& ids,
                       const std::vector<RunningAverage::Addition>& additions);
  // `finite` has an element for each factor.
  void note_averages(const std::vector<FactorId>& ids, const at::Tensor& finite);
  // `failures` and `kept` have elements for each group of each factor.
  void note_inverses(const std::vector<FactorId>& ids, const at::Tensor& failures,
                     const at::Tensor& kept);
  // Of the factors A, then G, of these layers, for all groups.
  DampingPair joined_dampings(const std::vector<std::size_t>& layers) const;
  void invert_together(const std::vector<FactorId>& ids, const at::Tensor& dampings);
  std::vector<LayerProfile::Inverted> parts_by_arithmetic(const std::vector<FactorId>& ids);
  // The batch of these factors on a GPU, made when it is first asked for or they have moved.
  InverseBatch& batch_of(const std::vector<FactorId>& ids);
  // The same for gradients of these layers.
  PreconditionBatch& gradients_of(const std::vector<std::size_t>& layers);
  bool goes_together(std::size_t layer) const;
  std::string text_of(FactorId id) const;
  // For inverses and what they are multiplied with.
  Precision solving_precision() const;
  std::array<at::Tensor, 3> scratch(at::IntArrayRef shape, const at::TensorOptions& options);

  const KfacOptions& options_;
  std::shared_ptr<spdlog::logger> logger_;
  StepTrace& trace_;
  const std::string place_;
  KfacCounters counters_;
  EventLog events_;
  std::vector<LayerState> states_;
  std::array<std::vector<std::vector<Held>>, 2> held_;  // by side, then by layer
  std::vector<bool> missing_said_;
  std::array<at::Tensor, 3> scratch_;  // that all layers share, one after the other
  struct KnownBatch {
    std::vector<FactorId> ids;
    std::vector<const void*> places;
    InverseBatch batch;
  };
  std::vector<KnownBatch> batches_;
  struct KnownGradients {
    std::vector<std::size_t> layers;
    std::vector<const void*> places;
    PreconditionBatch batch;
  };
  std::optional<KnownGradients> gradients_;
  LayerProfile* profile_ = nullptr;
};

}  // namespace spdkfac
