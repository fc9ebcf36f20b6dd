// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/module.h>

#include "spdkfac/base/log.h"
#include "spdkfac/runtime/distribution.h"
#include "spdkfac/runtime/kfac_counters.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/kfac_state.h"
#include "spdkfac/runtime/momentum.h"
#include "spdkfac/runtime/tracked_layer.h"
#include "spdkfac/trace/trace.h"

namespace spdkfac {

// Preconditions the gradients of a model's layers (runtime/kinds) with K-FAC. One line on an
// unmodified model; then, in each iteration:
//   loss.backward();  kfac.step(learning_rate);  optimizer.step();
// The loss is a mean over the examples (KfacOptions::loss_reduction). Several backward passes
// before one step() count as one batch; divide their losses by their number.
//
// With a communicator of several ranks the gradients of all parameters are averaged over the ranks,
// too; every rank makes the object, calls its functions equally often, and ends with the same
// gradients. The model must have the same parameters on all of them.
//
// Forward passes are seen on the thread that made the object, in training mode and with gradients
// on. Not thread-safe. On CUDA work is queued on the current stream and step() does not wait for
// it. The model must outlive the object.
class Preconditioner {
 public:
  explicit Preconditioner(torch::nn::Module& model, const KfacOptions& options = {},
                          std::shared_ptr<Logger> logger = nullptr);
  Preconditioner(torch::nn::Module& model, const KfacOptions& options,
                 const Distribution& distribution, std::shared_ptr<Logger> logger = nullptr);
  // `others` are the model's parameters outside these layers; a step that is skipped for a gradient
  // that is not finite sets theirs to zero, too.
  Preconditioner(std::vector<TrackedLayer> layers, std::vector<at::Tensor> others,
                 const KfacOptions& options, std::shared_ptr<Logger> logger = nullptr);
  // Likewise on several ranks; `parameters` are all of the model's, in its order.
  Preconditioner(std::vector<TrackedLayer> layers, std::vector<at::Tensor> parameters,
                 const KfacOptions& options, const Distribution& distribution,
                 std::shared_ptr<Logger> logger = nullptr);
  ~Preconditioner();
  Preconditioner(const Preconditioner&) = delete;
  Preconditioner& operator=(const Preconditioner&) = delete;

  // Replaces the gradients by preconditioned ones. `learning_rate` and `momentum` are those of the
  // coming update (momentum_of(optimizer)); only kl_clip uses them. Without a call of any layer
  // since the last step and with rate 0 it does nothing: torch.distributed.checkpoint steps so to
  // make an optimizer's state.
  void step(double learning_rate, const Momentum& momentum = {});
  void step();  // with the learning rate of the options

  // With several ranks: the gradients are averaged now, so that they may be read and changed before
  // step(), as clipping does. Plans that leave averages with their owners cannot: a ConfigError.
  void synchronize();

  // Changes these options from here on. All ranks call it together, with the same values; intervals
  // change between steps. States hold the values that have changed.
  void change(const KfacChanges& changes);

  // Forgets what was captured since the last step, for a batch that is not to count.
  void discard();

  // On CUDA the last step's events are counted when the next step begins; this waits for them, and
  // for those of replayed steps.
  KfacCounters counters();
  KfacMemory memory() const;
  int ranks() const;
  const std::vector<TrackedLayer>& layers() const;
  const KfacOptions& options() const;
  // The plan of a kind of step that is followed now; none before the first step. One rank has a
  // plan without messages.
  std::optional<Plan> plan(StepKind kind = StepKind::kFull) const;
  // The layers that the plan is for, with measured times once there are some; empty on one rank.
  const ModelSpec& model() const;

  // Everything that the next steps depend on, also in the middle of a batch, which is no part of
  // it. A state of another model or of other options is a ConfigError that says what differs, and
  // changes nothing; one of another number of ranks is as good as any. All ranks call both. A rank
  // may load all tensors, or a part; what it needs and lacks comes from a rank that has it.
  KfacStateStream state();
  void load(const KfacState& state);

 private:
  friend class StepControl;  // step_control.h
  friend class StepMeter;    // step_meter.h
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spdkfac
