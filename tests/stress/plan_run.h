// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/comm/comm_options.h"
#include "spdkfac/plan/plan.h"
#include "stress/plan_case.h"

namespace spdkfac::stress {

// Where a rank is in a step.
enum class Moment { kBegin, kAfterForward, kAfterBackward, kAfterStep };
// Called by every rank at every moment; may wait or throw.
using AtMoment = std::function<void(int rank, std::int64_t step, Moment moment)>;

struct Trained {
  std::vector<at::Tensor> ranks;  // all parameters, flat, of each rank
  std::optional<Plan> plan;       // of the first rank, for the first part of the run
};

// Called by a rank at its end, with its error; null if it has none.
using AtEnd = std::function<void(int rank, const std::exception_ptr& error)>;

// Trains on ranks that are threads. `followed` replaces the case's source of plans.
Trained train_on_threads(
    const PlanCase& one, const AtMoment& at_moment,
    const std::optional<Plan>& followed = std::nullopt, const CommOptions& options = {},
    const AtEnd& at_end = [](int, const std::exception_ptr&) {});

// The parameters that one rank gets from the batches of all ranks, joined.
at::Tensor train_on_joined_batches(const PlanCase& one);

// A random valid plan for the same model and work: other owners, orders and fusions.
Plan changed_plan(Plan plan, const ModelSpec& model, std::uint32_t seed);

}  // namespace spdkfac::stress
