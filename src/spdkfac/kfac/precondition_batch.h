// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/units.h"
#include "spdkfac/kfac/graft.h"
#include "spdkfac/kfac/precision.h"

namespace spdkfac::kfac {

// The gradients of many layers on a GPU, preconditioned together with a handful of launches: copied
// to matrices of their own, multiplied with the inverses on a few streams side by side, which is
// replayed as one CUDA graph after the first time, and copied back. With a rule for grafting the
// graph also has what comes before and after that. Inverses and moments must stay where they are;
// gradients may move.
class PreconditionBatch {
 public:
  struct Task {
    at::Tensor inverse_a;  // [groups, d, d]
    at::Tensor inverse_g;
    bool rows_are_inputs = false;                       // of the weight: [in, out], one group
    bool has_bias = false;                              // asked for such weights only
    std::optional<AdamMoments> moments = std::nullopt;  // for grafting onto Adam
  };
  struct Gradients {
    at::Tensor weight;
    at::Tensor bias;  // undefined: none, or it is frozen
  };
  PreconditionBatch(const std::vector<Task>& tasks, Precision precision,
                    const GraftRule& graft = {});
  ~PreconditionBatch();
  PreconditionBatch(PreconditionBatch&&) noexcept;
  PreconditionBatch& operator=(PreconditionBatch&&) noexcept;

  // Whether run() takes gradients like this one for inverses of the type: of that type, and without
  // gaps.
  static bool takes(const at::Tensor& gradient, at::ScalarType type);

  // Replaces the gradients, one for each task; returns their inner products (precondition.h) as a
  // tensor of doubles that the next run overwrites. A layer without inverses keeps its gradient.
  at::Tensor run(const std::vector<Gradients>& gradients);

  Bytes buffer_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spdkfac::kfac
