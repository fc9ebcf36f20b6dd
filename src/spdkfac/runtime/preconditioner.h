// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/module.h>
#include <torch/serialize/archive.h>

#include "spdkfac/runtime/distribution.h"
#include "spdkfac/runtime/kfac_counters.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/tracked_layer.h"
#include "spdkfac/trace/trace.h"

namespace spdlog {
class logger;
}

namespace spdkfac {

// Preconditions the gradients of a model's Conv2d and Linear layers with K-FAC. One line on an
// unmodified model; then, in each iteration:
//   loss.backward();  kfac.step(learning_rate);  optimizer.step();
// The loss is a mean over the examples. Several backward passes before one step() count as one
// batch; divide their losses by their number.
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
                          std::shared_ptr<spdlog::logger> logger = nullptr);
  Preconditioner(torch::nn::Module& model, const KfacOptions& options,
                 const Distribution& distribution,
                 std::shared_ptr<spdlog::logger> logger = nullptr);
  // `others` are the model's parameters outside these layers; a step that is skipped for a gradient
  // that is not finite sets theirs to zero, too.
  Preconditioner(std::vector<TrackedLayer> layers, std::vector<at::Tensor> others,
                 const KfacOptions& options, std::shared_ptr<spdlog::logger> logger = nullptr);
  // Likewise on several ranks; `parameters` are all of the model's, in its order.
  Preconditioner(std::vector<TrackedLayer> layers, std::vector<at::Tensor> parameters,
                 const KfacOptions& options, const Distribution& distribution,
                 std::shared_ptr<spdlog::logger> logger = nullptr);
  ~Preconditioner();
  Preconditioner(const Preconditioner&) = delete;
  Preconditioner& operator=(const Preconditioner&) = delete;

  // Replaces the gradients by preconditioned ones. `learning_rate` is that of the coming update;
  // only kl_clip uses it.
  void step(double learning_rate);
  void step();  // with the learning rate of the options

  // With several ranks: the gradients are averaged now, so that they may be read and changed before
  // step(), as clipping does. Plans that leave averages with their owners cannot: a ConfigError.
  void synchronize();

  // For losses that are multiplied by a factor, as in mixed precision: asked for that factor, a 0-d
  // tensor, in each backward pass; what comes to G is divided by it. Gradients of parameters are to
  // be divided by the caller before step().
  void set_loss_scale(std::function<at::Tensor()> scale);

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

  // Everything that the next steps depend on. A state of another model or of other options is a
  // ConfigError that says what differs; one of another number of ranks is as good as any. With
  // several ranks save() gathers what single ranks keep, so all call it; any of them may write.
  void save(torch::serialize::OutputArchive& archive);
  void load(torch::serialize::InputArchive& archive);

 private:
  friend class GraphSteps;  // graph_steps.h
  friend class StepMeter;   // step_meter.h
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spdkfac
