// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/plan/refresh_intervals.h"

namespace spdkfac {

// Makes the plan of a kind of step for the layers that a model was seen to call, refreshed as
// KfacOptions says. It must give the same on every rank.
using Planner =
    std::function<Plan(const ModelSpec& model, const RefreshIntervals& intervals, StepKind step)>;

// How the work of a step is shared out among ranks.
struct Distribution {
  std::shared_ptr<Communicator> communicator;  // null: this process alone
  Planner planner;                             // null: assumed_planner()
  bool second_order = true;                    // false: gradients are averaged, that is all
  // False: someone else averages the gradients before step(), such as DistributedDataParallel.
  bool send_gradients = true;
  std::string model_name = "model";  // in plans and cluster files
  // After this many steps the plan is made again from the times of layers, measured meanwhile and
  // averaged over the ranks; 0: never.
  std::int64_t profile_steps = 5;
};

// Assumed where nothing was measured: 10 Gbit/s, 50 GFLOP/s.
CostModel assumed_costs(int world);
// spd-kfac with these costs.
Planner assumed_planner(int world);

}  // namespace spdkfac
