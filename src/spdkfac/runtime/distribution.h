// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/plan/refresh_intervals.h"

namespace spdkfac {

// Where the plans of several ranks come from: one of these. All ranks pass the same. How often
// factors and inverses are renewed is a matter of KfacOptions.

// Plans for the costs of these ranks, which they measure together when the Preconditioner is made.
// That takes a few seconds, or nothing if an earlier run has left the costs in the cache.
struct MeasureHere {
  PlanOptions options = {};
  bool recalibrate = false;                 // measure even if the cache knows the costs
  std::string transport = {};               // other transports have other costs
  std::filesystem::path cache_folder = {};  // empty: that of the user
};
// Plans for known costs of as many ranks.
struct PlanForCosts {
  CostModel costs;
  PlanOptions options = {};
};
// One plan of a full step. Steps between refreshes follow its options and intervals.
struct FollowPlan {
  Plan plan;
  std::string where = "plan";  // begins the error of a plan for another number of ranks
};
// Makes the plan of a kind of step for the layers that a model was seen to call.
using Planner =
    std::function<Plan(const ModelSpec& model, const RefreshIntervals& intervals, StepKind step)>;
struct CustomPlanner {
  Planner planner;
  bool second_order = true;  // false: its plans are without factors
};
using PlanSource = std::variant<MeasureHere, PlanForCosts, FollowPlan, CustomPlanner>;

// How the work of a step is shared out among ranks.
struct Distribution {
  std::shared_ptr<Communicator> communicator = nullptr;  // null: one rank
  PlanSource plans = {};                                 // of several ranks
  // False: someone else averages the gradients before step(), such as DistributedDataParallel.
  bool send_gradients = true;
  // True: no message leaves before step() or synchronize(), so that none travels while someone else
  // sends during the passes. NCCL may stop for ever when two of its groups do that.
  bool messages_after_passes = false;
  std::string model_name = "model";  // in plans and cluster files
  // After this many steps the plan is made again from the times of layers, measured meanwhile and
  // averaged over the ranks; 0: never. A FollowPlan stays.
  std::int64_t profile_steps = 5;
};

// Whether plans of the source have factors; without them gradients are averaged, that is all.
bool second_order(const PlanSource& source);

}  // namespace spdkfac
