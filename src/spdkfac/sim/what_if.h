// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/plan/refresh_intervals.h"

namespace spdkfac::sim {

// Everything that a prediction depends on.
struct Scenario {
  ModelSpec model;
  CostModel costs;
  int world = 1;
  PlanOptions options;
  RefreshIntervals intervals = {};
};

// What the seconds of each part are multiplied by: 0.5 is twice as fast, 0 costs nothing.
struct CostScale {
  double forward_backward = 1;
  double factors = 1;
  double inverses = 1;
  double precondition = 1;
  double bytes = 1;       // of a message: what grows with its elements
  double startups = 1;    // of a message: the rest, per tensor included
  double host = 1;        // per tensor
  double packing = 1;     // and unpacking
  double contention = 1;  // the time that computation loses while messages travel
};
constexpr CostScale kEverythingFree{0, 0, 0, 0, 0, 0, 0, 0, 0};

Scenario scaled(const Scenario& scenario, const CostScale& scale);

// No inverse takes longer than `most`.
Scenario with_inverses_at_most(const Scenario& scenario, Seconds most);

// Seconds of one inversion of every factor of the model.
Seconds all_inverses(const ModelSpec& model, const CostModel& costs);
Seconds largest_inverse(const ModelSpec& model, const CostModel& costs);

}  // namespace spdkfac::sim
