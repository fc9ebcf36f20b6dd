// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "spdkfac/runtime/preconditioner.h"

namespace spdkfac {

// What special training loops tell a Preconditioner, which must outlive it: mixed precision,
// gradients filled with zeros, adaptive damping, compiled models, recorded steps. Plain loops need
// nothing of this.
class StepControl {
 public:
  explicit StepControl(Preconditioner& kfac) : kfac_(kfac) {}

  // For losses that are multiplied by a factor, as in mixed precision: asked for that factor, a 0-d
  // tensor, in each backward pass; what comes to G is divided by it. Gradients of parameters are to
  // be divided by the caller before step().
  void set_loss_scale(std::function<at::Tensor()> scale);

  // Tells that the gradients were set to zero: what was captured for them does not count either.
  // Not needed where zero_grad() sets them to none, its default, before the next forward pass.
  void gradients_zeroed();

  // With lm_damping, after every fifth step(): update the parameters, compute the loss on the same
  // batch again, discard() what that has captured, and tell both values, of this rank's part of the
  // batch. All ranks do so. The update must leave the gradients alone.
  bool judges_damping() const;
  void judge_damping(double loss_before, double loss_after);

  // Layers, by their index in layers(), that have a gradient though no call of them was seen since
  // the last step; none where the coming step needs no factors. Something hides them from the
  // capture, or something else than a call made the gradient.
  std::vector<std::size_t> unseen_layers() const;
  // Whether the coming step needs the calls of layers: for factors, the first plan or times. In
  // other steps they may be hidden, as compiled code does.
  bool wants_calls() const;

  // For steps that are recorded on a GPU and replayed, as GraphSteps does. What cannot be recorded
  // is a ConfigError. The coming step has a number: steps of one number queue the same work on the
  // same memory. A replay calls no step(), so the caller tells of it.
  void require_recordable() const;
  int variant();
  void count_replayed_step(int variant);
  // A 0-d double tensor on the device of the model: kl_clip goes by its value when the step runs,
  // also in replays, and no longer by the rate that step() is told. Undefined: as step() is told.
  void set_rate(at::Tensor rate);

  // For a rank that could not read what it should load: the others are in load(), which fails
  // there.
  void load_failed();

 private:
  Preconditioner& kfac_;
};

}  // namespace spdkfac
