// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "spdkfac/base/category.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/plan/plan_options.h"

namespace spdkfac::plan {

enum class TaskKind { kFactorA, kForward, kBackward, kFactorG };

struct StreamTask {
  TaskKind kind = TaskKind::kForward;
  int layer = 0;
  Seconds duration;
};

// What a rank computes, in order, up to the end of the backward pass and of the factors, and
// after which task each tensor may leave. Planner and simulator both follow it.
struct ComputeStream {
  std::vector<StreamTask> tasks;
  // Tasks from here on wait until every message released before them has arrived (bulk schedule);
  // tasks.size() when nothing waits.
  std::size_t join = 0;
  // Per layer, the index of the releasing task; empty when the step has no such tensor.
  std::vector<std::size_t> release_a;
  std::vector<std::size_t> release_g;
  std::vector<std::size_t> release_gradient;
};

// The forward pass layer by layer, then the backward pass from the last layer; costs.task_order
// says on which side of its layer's pass a factor is computed. With several ranks (costs.world)
// each tensor that will travel costs host_per_tensor, a factor also its packing. Schedules:
// - pipelined: a factor leaves when it is computed;
// - naive: A leaves at the end of the forward pass, G at the end of the backward pass;
// - bulk: all factors are computed and leave after the backward pass, in one loop whose packing is
//   part of the factor time.
// Local factors do not travel; who owns none of a layer leaves its tasks out.
ComputeStream compute_stream(const ModelSpec& model, std::span<const LayerCosts> layers,
                             const CostModel& costs, FactorSchedule schedule, bool with_factors,
                             bool local_factors = false);

// End of each task when nothing slows the stream and the join (if any) is passed at `join_time`.
std::vector<Seconds> end_times(const ComputeStream& stream, Seconds join_time = Seconds(0));

inline bool is_factor(TaskKind kind) {
  return kind == TaskKind::kFactorA || kind == TaskKind::kFactorG;
}
Category category_of(TaskKind kind);
// That of the greater part of a message's elements.
Category category_of(const Message& message, const ModelSpec& model);

}  // namespace spdkfac::plan
