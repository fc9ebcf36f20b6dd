// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/factor_shape.h"

namespace spdkfac::kfac {

// m ← ρ·m + (1−ρ)·new, started from the first factor that is finite. Everything stays on the
// factor's device: on CUDA nothing waits for the host.
class RunningAverage {
 public:
  // Zeros, to be replaced by the first factor; with `identity` the identity, which that one is
  // averaged into.
  RunningAverage(const FactorShape& shape, double decay, bool identity,
                 const at::TensorOptions& options);

  // Averages in scale·sum, unless one of its diagonals holds a NaN or an infinity: for sums of
  // squares that is the case exactly when any element does. Returns whether it was, as a 0-d bool.
  at::Tensor add(const at::Tensor& sum, double scale);

  // Several at once, on one device and with one decay: on a GPU with few kernels. `sum` has the
  // shape of mean() or is packed (symmetric.h). With a `count`, one element of the sum's type on
  // its device, the scale is divided by it, and 0 leaves the sum out as if it were finite. Which
  // were finite, bool [count].
  struct Addition {
    RunningAverage* average;
    at::Tensor sum;
    double scale;
    bool packed = false;
    at::Tensor count = {};
  };
  static at::Tensor add_all(const std::vector<Addition>& additions);

  const FactorShape& shape() const { return shape_; }
  // Of that shape; only the upper triangles are meant.
  const at::Tensor& mean() const { return mean_; }
  // What the next factor counts for: 1 before the start, then 1−ρ; a 0-d tensor.
  const at::Tensor& weight() const { return weight_; }
  // Puts back what mean() and weight() gave.
  void restore(const at::Tensor& mean, const at::Tensor& weight);

 private:
  bool add_on_cpu(const Addition& addition);

  FactorShape shape_;
  double decay_;
  at::Tensor mean_;
  at::Tensor weight_;
};

}  // namespace spdkfac::kfac
