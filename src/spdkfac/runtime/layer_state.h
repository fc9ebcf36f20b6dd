// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/serialize/archive.h>

#include "spdkfac/base/factor_side.h"
#include "spdkfac/kfac/factor.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/running_average.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// One Kronecker factor of a layer: this batch's sum, the running average, the inverse. A rank keeps
// only what it needs of the last two.
struct FactorState {
  at::Tensor sum;             // [groups, d, d], upper triangles
  bool summed = false;        // whether the sum holds anything of this batch
  std::int64_t examples = 0;  // of this batch
  std::optional<kfac::RunningAverage> average;
  std::optional<kfac::Inverse> inverse;

  std::int64_t dim() const { return sum.size(-1); }
  void clear();
};

// What K-FAC knows of one layer. Tensors are made at the first call of the layer, on its device.
class LayerState {
 public:
  LayerState(TrackedLayer layer, const KfacOptions& options);

  const TrackedLayer& layer() const { return layer_; }
  bool ready() const { return a_.has_value(); }
  FactorState& factor(FactorSide side) { return side == FactorSide::kA ? *a_ : *g_; }
  const FactorState& factor(FactorSide side) const { return side == FactorSide::kA ? *a_ : *g_; }

  // Whether this rank keeps the running average and the inverse. What it did not keep starts
  // afresh.
  void keep(FactorSide side, bool average, bool inverse);
  bool has_averages() const { return ready() && a_->average && g_->average; }
  bool has_inverses() const { return ready() && a_->inverse && g_->inverse; }

  // A call of the layer adds to this batch's A, and the gradient of its output to G: at once, or,
  // when deferred, in add_deferred(). Calls before the first gradient belong to one pass over the
  // same examples; an earlier call whose graph is gone does not. add_call returns the pass, for the
  // gradient of that call.
  std::int64_t add_call(const kfac::LayerUse& use, const at::Tensor& input,
                        const at::Tensor& output, bool defer);
  void add_gradient(const kfac::LayerUse& use, const at::Tensor& gradient, std::int64_t pass,
                    bool defer);
  bool has_deferred(FactorSide side) const { return !deferred(side).empty(); }
  void add_deferred(FactorSide side);

  // Whether inputs and gradients came in since clear().
  bool captured() const { return ready() && a_->summed && g_->summed; }
  void clear();

  // Whether the averages changed since the inverses were made.
  bool stale = false;

  void save(torch::serialize::OutputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive);

 private:
  // A call whose input, or whose output's gradient, is yet to be multiplied.
  struct Call {
    kfac::LayerUse use;
    at::Tensor tensor;
  };
  void make_ready(std::int64_t groups);
  void add(FactorSide side, const Call& call);
  std::vector<Call>& deferred(FactorSide side) { return deferred_[side == FactorSide::kA ? 0 : 1]; }
  const std::vector<Call>& deferred(FactorSide side) const {
    return deferred_[side == FactorSide::kA ? 0 : 1];
  }

  TrackedLayer layer_;
  const KfacOptions* options_;
  std::optional<FactorState> a_;
  std::optional<FactorState> g_;
  std::int64_t pass_ = 0;           // of the latest call
  std::int64_t gradient_pass_ = 0;  // whose examples G has counted
  std::weak_ptr<torch::autograd::Node> last_call_;
  std::array<std::vector<Call>, 2> deferred_;  // by side
};

}  // namespace spdkfac::runtime
