// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan.h"

namespace spdkfac::report {

// Draws a plan for people: how messages are grouped, who owns which factor and how much work that
// is. A summary unless `full`, which lists every message and every owner. `costs` is for the
// plan's world.
std::string plan_text(const Plan& plan, const ModelSpec& model, const CostModel& costs, bool full);

// The same in a few lines: sizes and numbers, no names.
std::string plan_summary(const Plan& plan, const ModelSpec& model, const CostModel& costs);

}  // namespace spdkfac::report
