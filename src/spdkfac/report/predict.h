// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/report/prediction.h"
#include "spdkfac/report/run.h"
#include "spdkfac/sim/simulator.h"
#include "spdkfac/trace/trace.h"

namespace spdkfac::report {

struct Predicted {
  Prediction prediction;  // averaged over a refresh cycle
  Plan plan;              // of the full step, with its own prediction
  Trace trace;            // of the full step
};

// Every algorithm once, `auto` last: kfac and sp-otf are other names of d-kfac and spd-kfac.
std::vector<std::string> compared_algorithms();

// Plans and simulates one algorithm, `auto` included.
Predicted predict(const ModelSpec& model, const CostModel& costs, int world,
                  const PlanOptions& options, const RefreshIntervals& intervals,
                  const SimulationOptions& simulation = {});

// Simulates one step of a given plan.
Predicted predict(const ModelSpec& model, const CostModel& costs, Plan plan,
                  const SimulationOptions& simulation = {});

// A simulation as the times of a row of an experiment.
RunTimes run_times(const Predicted& predicted);

}  // namespace spdkfac::report
