// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/sim/iteration_result.h"

namespace spdkfac {

struct SimulationOptions {
  std::map<int, double> slow = {};        // rank → factor on its compute times, > 0
  std::vector<Slowness> slow_parts = {};  // by rank, on top; empty: all are 1
  double jitter = 0;  // each compute task × a uniform factor in [1−jitter, 1+jitter]
  std::uint64_t seed = 0;
  bool trace = true;  // record events of every rank
  // Of a full step, the layers that renew their inverses; empty: all.
  std::vector<bool> renewed = {};
};

// Runs one step of `plan` on the modelled cluster, deterministically; docs/cost-models.md has the
// rules. `costs` may be for another number of ranks; it is scaled to the plan's.
IterationResult simulate(const Plan& plan, const ModelSpec& model, const CostModel& costs,
                         const SimulationOptions& options = {});

// Average bytes that a rank sends in one step of the plan, with bandwidth-optimal collectives on
// P ranks: all-reduce 2·(P−1)/P of its payload; reduce and broadcast (P−1)/P. Each factor of a
// message adds one element, the number of its examples. `renewed` as in SimulationOptions.
double bytes_per_worker(const Plan& plan, const ModelSpec& model,
                        const std::vector<bool>& renewed = {});

}  // namespace spdkfac
