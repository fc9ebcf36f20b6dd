// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "spdkfac/base/factor_side.h"
#include "spdkfac/kfac/eigen_precondition.h"
#include "spdkfac/kfac/factor.h"
#include "spdkfac/kfac/graft.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/running_average.h"
#include "spdkfac/runtime/factor_shapes.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/passes.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// Of tensors with factors of this weight: in its type or a wider one, on its device.
at::TensorOptions factor_options(const at::Tensor& weight);

// One Kronecker factor of a layer: this batch's sum, the running average, the inverse. A rank keeps
// only what it needs of the last two.
struct FactorState {
  FactorShape shape;
  at::Tensor sum;                         // of that shape, upper triangles
  bool called = false;                    // in this batch, also without rows
  bool summed = false;                    // whether the sum holds anything of this batch
  std::int64_t examples = 0;              // that the sum holds, of this batch
  std::vector<std::int64_t> passes = {};  // whose examples are counted
  std::optional<kfac::RunningAverage> average;
  // With adaptive intervals, where the average is kept: its diagonal when its inverse was made.
  at::Tensor inverted = {};
  std::optional<kfac::Inverse> inverse;
  // Of G, kept where the inverse is: for updates of Adam's length, and for solvers with moments in
  // the eigenvectors.
  std::optional<kfac::AdamMoments> moments = std::nullopt;
  std::optional<kfac::BasisMoments> basis_moments = std::nullopt;

  void clear();
};

// Of adaptive intervals, the same on all ranks: the step that made the inverses (-1: none), how far
// the factors have moved since then as far as it counts, and what was measured last and is to count
// (-1: nothing).
struct RefreshRecord {
  double renewed = -1;
  double change = 0;
  double coming = -1;
};

// What K-FAC knows of one layer. Tensors are made at the first call of the layer, on its device.
class LayerState {
 public:
  LayerState(TrackedLayer layer, const KfacOptions& options);

  const TrackedLayer& layer() const { return layer_; }
  bool ready() const { return a_.has_value(); }
  // Makes the tensors of a layer that was not called.
  void make_ready();
  FactorState& factor(FactorSide side) { return side == FactorSide::kA ? *a_ : *g_; }
  const FactorState& factor(FactorSide side) const { return side == FactorSide::kA ? *a_ : *g_; }

  // Whether this rank keeps the running average and the inverse. What it did not keep starts
  // afresh.
  void keep(FactorSide side, bool average, bool inverse);
  bool has_averages() const { return ready() && a_->average && g_->average; }
  bool has_inverses() const { return ready() && a_->inverse && g_->inverse; }

  // A call of the layer in a pass adds its input to this batch's A, or the gradient of its output
  // to G: at once, or, when deferred, in add_deferred(). Each counts the examples of a pass once.
  // Rows that these do not divide are a ConfigError; those of a constant are examples of their own.
  // A call without rows adds nothing.
  struct Call {
    kfac::LayerUse use;
    std::int64_t pass = 0;
    at::Tensor tensor;      // undefined: its products have been added
    bool constant = false;  // the input does not come from the examples
    double weight = 1;      // of the tensor's products, where it is a sample of the rows
  };
  void add(FactorSide side, const Call& call, const Passes& passes);
  // A call had a table of the model as its input: its rows are its examples.
  void set_constant() { constant_ = true; }
  void defer(FactorSide side, const Call& call);
  // Adds the products of a call whose scale does not depend on the examples of its pass.
  void add_products(FactorSide side, const Call& call, double scale);
  bool has_deferred(FactorSide side) const { return !deferred(side).empty(); }
  void add_deferred(FactorSide side, const Passes& passes);

  // Whether inputs and gradients came in since clear(), and whether they had rows.
  bool seen() const { return ready() && a_->called && g_->called; }
  bool captured() const { return ready() && a_->summed && g_->summed; }
  void clear();
  // The next calls add to the same sums, in passes of their own.
  void next_batch();

  // Whether the averages changed since the inverses were made.
  bool stale = false;
  RefreshRecord refresh;

  FactorShape shape(FactorSide side) const {
    return factor_shape(layer_, side, options_->factor_limit());
  }
  // For states of a run, also of a layer that was not called yet.
  kfac::RunningAverage new_average(FactorSide side, at::Device device) const;
  at::Tensor new_diagonal(FactorSide side, at::Device device) const;
  kfac::Inverse new_inverse(FactorSide side, at::Device device) const;
  std::optional<kfac::AdamMoments> new_moments(FactorSide side, at::Device device) const;
  std::optional<kfac::BasisMoments> new_basis_moments(FactorSide side, at::Device device) const;
  // As if the layer had never been averaged.
  void forget();

 private:
  void make_ready_for(const kfac::LayerUse& use);
  kfac::LayerUse use_in_pass(const Call& call, const Passes& passes);
  // One row for each example (Sharing::kReduce).
  Call reduced(FactorSide side, const Call& call, const kfac::LayerUse& use);
  std::vector<Call>& deferred(FactorSide side) { return deferred_[side == FactorSide::kA ? 0 : 1]; }
  const std::vector<Call>& deferred(FactorSide side) const {
    return deferred_[side == FactorSide::kA ? 0 : 1];
  }

  TrackedLayer layer_;
  const KfacOptions* options_;
  bool constant_ = false;  // its rows are not those of examples
  std::optional<FactorState> a_;
  std::optional<FactorState> g_;
  std::array<std::vector<Call>, 2> deferred_;  // by side
};

}  // namespace spdkfac::runtime
