// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/runtime/clipping.h"

namespace spdkfac::runtime {

// Levenberg–Marquardt damping: whether a step of training did what the quadratic model of K-FAC
// said, and the damping that follows (kfac-jax's rule).
//
// The model of the change δ of a layer is ⟨∇W, δ⟩ + ½·δᵀ(F+γ)δ. F is that of K-FAC, (F+γ)·V = ∇W,
// so both terms are known for δ along V, and of δ only its part along V counts. That is all of it
// for SGD; momentum and weight decay also move across. Other parameters have the first term only.
class DampingTrial {
 public:
  static constexpr int kInterval = 5;  // steps between two trials

  // `clipped` is what clip_gradients returned for these layers; `others` are the parameters outside
  // them. Keeps the parameters as they are before the update.
  DampingTrial(std::vector<ClippedLayer> layers, const Clipped& clipped,
               std::vector<ParameterPart> others);

  // After the update, before any gradient is changed: what the model says of it. Waits for a GPU.
  double predicted() const;

 private:
  std::vector<ClippedLayer> layers_;
  at::Tensor slopes_;
  at::Tensor curvatures_;
  std::vector<ParameterPart> others_;
  std::vector<std::vector<at::Tensor>> before_;  // parameters of each layer
  std::vector<at::Tensor> others_before_;
};

// The damping after a trial. ρ is the change of the loss over the predicted one: above ¾ the
// damping falls by 0.9⁵, below ¼, or where the loss is not finite, it rises as much; within
// [1e-10, 1e10].
double damping_after(double damping, double change, double predicted);

}  // namespace spdkfac::runtime
