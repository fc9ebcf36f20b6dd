// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <vector>

#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/trace/trace.h"

namespace spdkfac {

// What layers took in steps in which they were timed, the same on all ranks.
struct TimedSteps {
  ModelSpec model;                              // with the means over steps and ranks
  std::vector<std::vector<Slowness>> slowness;  // of each step, of each rank
};

// Measures the steps of a Preconditioner, which must outlive it. For benchmarks: training needs
// nothing of this.
class StepMeter {
 public:
  explicit StepMeter(Preconditioner& kfac) : kfac_(kfac) {}

  // With several ranks, between steps: whether layers are timed in the coming ones, as in those
  // before the plan is made again. Messages wait meanwhile, so such steps are slower.
  void time_layers(bool on);
  // What they took in these steps; all ranks call it.
  TimedSteps timed_steps() const;

  // What the last step did, with options.trace: everything since the step before, or since
  // start_trace(). Empty before the second step.
  void start_trace();
  Trace trace() const;
  // When that began, on this host's clock.
  std::chrono::steady_clock::time_point trace_begin() const;

 private:
  Preconditioner& kfac_;
};

}  // namespace spdkfac
