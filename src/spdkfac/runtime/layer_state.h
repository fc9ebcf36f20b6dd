// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <torch/csrc/autograd/function.h>
#include <torch/serialize/archive.h>

#include "spdkfac/kfac/factor.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/running_average.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac {

// One Kronecker factor of a layer: this batch's sum, the running average, the inverse.
struct FactorState {
  at::Tensor sum;  // [groups, d, d], upper triangles
  std::int64_t examples = 0;
  RunningAverage average;
  Inverse inverse;

  FactorState(std::int64_t groups, std::int64_t dim, const KfacOptions& options,
              const at::TensorOptions& tensor);
  void clear();
};

// What K-FAC knows of one layer. Tensors are made at the first call of the layer, on its device.
class LayerState {
 public:
  LayerState(TrackedLayer layer, const KfacOptions& options);

  const TrackedLayer& layer() const { return layer_; }
  bool ready() const { return a_.has_value(); }
  FactorState& a() { return *a_; }
  FactorState& g() { return *g_; }
  const FactorState& a() const { return *a_; }
  const FactorState& g() const { return *g_; }

  // A call of the layer and, later, the gradient of its output. Calls before the first gradient
  // belong to one pass over the same examples; an earlier call whose graph is gone does not.
  // Returns the pass, for add_gradient.
  std::int64_t add_input(const LayerUse& use, const at::Tensor& input, const at::Tensor& output);
  void add_gradient(const LayerUse& use, const at::Tensor& gradient, std::int64_t pass);

  // Whether inputs and gradients came in since clear().
  bool captured() const { return ready() && a_->examples > 0 && g_->examples > 0; }
  void clear();

  // Whether the averages changed since the inverses were made.
  bool stale = false;

  void save(torch::serialize::OutputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive);

 private:
  void make_ready(std::int64_t groups);

  TrackedLayer layer_;
  const KfacOptions* options_;
  std::optional<FactorState> a_;
  std::optional<FactorState> g_;
  std::int64_t pass_ = 0;           // of the latest call
  std::int64_t gradient_pass_ = 0;  // whose examples G has counted
  std::weak_ptr<torch::autograd::Node> last_call_;
};

}  // namespace spdkfac
