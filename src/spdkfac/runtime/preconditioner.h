// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/serialize/archive.h>

#include "spdkfac/base/trace.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdlog {
class logger;
}

namespace spdkfac {

// What happened so far; see docs/errors.md for what each means.
struct KfacCounters {
  std::int64_t steps = 0;
  std::int64_t factor_updates = 0;          // factors averaged in
  std::int64_t inverse_updates = 0;         // inverses refreshed
  std::int64_t nonfinite_factors = 0;       // factors with NaN or Inf, left out
  std::int64_t inverse_retries = 0;         // failed factorisations
  std::int64_t inverses_kept = 0;           // refreshes that kept the previous inverse
  std::int64_t nonfinite_gradients = 0;     // steps whose gradients were set to zero
  std::int64_t layers_without_factors = 0;  // gradients left as they were, for lack of a capture
};

// Bytes held between steps.
struct KfacMemory {
  Bytes factors;
  Bytes inverses;
  Bytes buffers;
};

// Preconditions the gradients of a model's Conv2d and Linear layers with K-FAC. One line on an
// unmodified model; then, in each iteration:
//   loss.backward();  kfac.step(learning_rate);  optimizer.step();
// The loss is a mean over the examples. Several backward passes before one step() count as one
// batch; divide their losses by their number.
//
// Forward passes are seen on the thread that made the object, in training mode and with gradients
// on. Not thread-safe. On CUDA work is queued on the current stream and step() does not wait for
// it. The model must outlive the object.
class Preconditioner {
 public:
  explicit Preconditioner(torch::nn::Module& model, const KfacOptions& options = {},
                          std::shared_ptr<spdlog::logger> logger = nullptr);
  // `others` are the model's parameters outside these layers; a step that is skipped for a gradient
  // that is not finite sets theirs to zero, too.
  Preconditioner(std::vector<TrackedLayer> layers, std::vector<at::Tensor> others,
                 const KfacOptions& options, std::shared_ptr<spdlog::logger> logger = nullptr);
  ~Preconditioner();
  Preconditioner(const Preconditioner&) = delete;
  Preconditioner& operator=(const Preconditioner&) = delete;

  // Replaces the gradients by preconditioned ones. `learning_rate` is that of the coming update;
  // only kl_clip uses it.
  void step(double learning_rate);
  void step();  // with the learning rate of the options

  // Forgets what was captured since the last step, for a batch that is not to count.
  void discard();

  // On CUDA the last step's events are counted when the next step begins; this waits for them.
  KfacCounters counters();
  KfacMemory memory() const;
  const std::vector<TrackedLayer>& layers() const;
  const KfacOptions& options() const;
  // What the last step did, with options.trace: everything since the step before, or since
  // start_trace().
  void start_trace();
  Trace trace();

  // Everything that the next steps depend on. A state of another model or of other options is a
  // ConfigError that says what differs.
  void save(torch::serialize::OutputArchive& archive);
  void load(torch::serialize::InputArchive& archive);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spdkfac
