// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spdkfac/calibrate/timing.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/fit.h"

namespace spdkfac::calibrate {

// What a step computes, each a list of tasks whose work is counted in its own unit.
enum class Part {
  kInverse,       // rows of the factor
  kForward,       // flops, as in layer tables
  kFactor,        // flops
  kPrecondition,  // flops
  kPack,          // elements
  kUnpack,        // elements
  kStart,         // operations handed to the communicator
};

struct ComputeTask {
  Part part = Part::kInverse;
  double work = 0;
  Task task;
};

// The inversions of dimensions `dims`, and the other parts on a few layers of ResNets with `batch`
// examples.
std::vector<ComputeTask> compute_tasks(Communicator& communicator, c10::Device device,
                                       const std::vector<std::int64_t>& dims, std::int64_t batch);

struct ComputeTimes {
  std::vector<plan::Measurement> inverse;  // seconds by dimension
  ComputeRates rates;
  Overheads overheads;  // without the rates of computation and messages under each other
};

// Measures what ranks compute, on all of them at the same time.
class ComputeStage {
 public:
  // Runs what is short once, to know how long all will take. With a budget it leaves out the
  // largest dimensions that do not fit into it, but keeps five. The bench outlives it.
  ComputeStage(const Bench& bench, std::vector<std::int64_t> dims, std::int64_t batch,
               int repetitions, std::optional<Seconds> budget = std::nullopt);

  Seconds estimate() const { return estimate_; }
  std::size_t samples() const;  // that measure() will take
  ComputeTimes measure() const;

 private:
  const Bench& bench_;
  std::vector<ComputeTask> tasks_;
  int repetitions_;
  Seconds estimate_;
};

}  // namespace spdkfac::calibrate
