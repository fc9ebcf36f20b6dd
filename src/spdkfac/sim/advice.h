// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "spdkfac/plan/plan_options.h"
#include "spdkfac/sim/what_if.h"

namespace spdkfac::sim {

// The id of the limit that is not a cost but one inverse, which only one rank can do.
constexpr const char* kLargestInverse = "largest_inverse";

// One part of an iteration, judged by simulations.
struct Limit {
  std::string id;    // for programs
  std::string part;  // for people
  Seconds alone;     // an iteration in which only this part costs anything: a lower bound
  Seconds without;   // an iteration in which this part costs nothing
};

// What a change asks for: a flag, or money.
enum class Needs { kOption, kHardware };

// Something that could be changed, and what an iteration would then take.
struct Change {
  std::string id;    // for programs
  std::string what;  // for people
  Needs needs = Needs::kOption;
  std::string training;  // what else the training would see; empty: the same numbers
  int world = 1;
  std::int64_t batch = 1;
  PlanOptions options;  // of the plan that would be followed
  RefreshIntervals intervals;
  Seconds iteration;
  double examples_per_second = 0;
  double speedup = 1;  // of examples per second
};

struct Advice {
  PlanOptions options;  // of the plan that is judged; `auto` has chosen
  Seconds iteration;    // averages over a refresh cycle, as all times here
  double examples_per_second = 0;
  // Of one refresh: a rank cannot invert faster than the largest, all ranks together not
  // faster than an equal share of all.
  Seconds largest_inverse;
  Seconds all_inverses;
  std::vector<Limit> limits;    // what costs most first
  std::string limiting;         // id of the limit that explains most; empty when none does
  std::vector<Change> changes;  // what helps most first
};

// Called after each what-if simulation with how many of them are done, and of how many.
using AdviceProgress = std::function<void(std::size_t done, std::size_t of)>;

// What limits an iteration and what would help, for any K-FAC algorithm. Each answer is a
// simulation of the changed scenario, planned by the same algorithm; or with the plan as it
// was where that still fits and is faster.
Advice advise(const Scenario& scenario, const AdviceProgress& progress = {});

}  // namespace spdkfac::sim
