// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spdkfac/plan/plan_options.h"

namespace spdkfac::bench {

// One row of an experiment: a preset, or one with an option changed.
struct Variant {
  std::string label;
  PlanOptions options;
  // Whatever the number of workers, this one; only simulated.
  std::optional<int> world = std::nullopt;
};
// As the paper calls the preset, or its own name.
Variant variant_of(const std::string& algorithm);

// A comparison of the paper: which algorithms stand beside each other.
struct Experiment {
  std::string name;  // on the command line and in records
  std::string help;
  std::vector<Variant> variants;
};
// iteration, breakdown, pipelining, placement, ablation, scaling, memory.
const std::vector<Experiment>& experiments();

}  // namespace spdkfac::bench
