// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spdkfac/plan/plan_options.h"
#include "spdkfac/report/run.h"

namespace spdkfac::bench {

// One row of an experiment: a preset, or one with an option changed.
struct Variant {
  std::string label;
  PlanOptions options;
  // Instead of the number of ranks that is asked for; only simulated.
  std::optional<int> world = std::nullopt;
};
// As the paper calls the preset, or its own name.
Variant variant_of(const std::string& algorithm);

// A comparison of the paper: which algorithms, and what is shown of them.
struct Experiment {
  std::string name;  // on the command line and in records
  std::string help;
  std::vector<Variant> variants;
  report::RunTable table = report::RunTable::kIteration;
  bool memory = false;  // what ranks hold is asked for, not the times
};
// iteration, breakdown, pipelining, placement, ablation, scaling, memory.
const std::vector<Experiment>& experiments();

}  // namespace spdkfac::bench
