// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/sim/iteration_result.h"
#include "spdkfac/sim/simulator.h"
#include "spdkfac/trace/breakdown.h"

namespace spdkfac {

// What one algorithm, or one plan, is expected to do on a cluster.
struct Prediction {
  std::string algorithm;
  std::string model;
  std::string cluster;
  std::int64_t batch = 1;
  int world = 1;
  RefreshIntervals intervals;  // those asked for; without factors they change nothing
  // Time, breakdown and bytes of an average iteration; trace, factor messages and inversions are
  // those of a full step.
  IterationResult result;
  // The iteration that does everything. Where refreshes are spread, none does: here and below it is
  // the one whose part takes longest.
  Seconds full_step;
  std::vector<RankUtilisation> utilisation;  // of the full step, by rank
  Plan plan;                                 // of the full step, with its own prediction
};

// What a rank on average waits for others in a full step: it neither computes nor communicates.
Seconds average_wait(const Prediction& prediction);

// Every algorithm once, `auto` last: kfac and sp-otf are other names of d-kfac and spd-kfac. With
// `all_methods`, those that are for forecasts only behind it.
std::vector<std::string> compared_algorithms(bool all_methods = false);
// At which intervals they are compared unless said: everything in every step, and rarely. Speed-ups
// of factors and inverses shrink with the intervals.
const std::vector<RefreshIntervals>& compared_intervals();

// Plans and simulates one algorithm, `auto` included.
Prediction predict(const ModelSpec& model, const CostModel& costs, int world,
                   const PlanOptions& options, const RefreshIntervals& intervals,
                   const SimulationOptions& simulation = {});

// Simulates one step of a given plan.
Prediction predict(const ModelSpec& model, const CostModel& costs, Plan plan,
                   const SimulationOptions& simulation = {});

}  // namespace spdkfac
