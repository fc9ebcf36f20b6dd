// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "spdkfac/sim/simulated_ranks.h"

namespace spdkfac::sim {

// Inversions, the broadcasts of what owners made, and preconditioning. Returns how long each stream
// inverted.
std::vector<Seconds> simulate_inverse_stage(const StepToSimulate& step, SimulatedRanks& ranks);

}  // namespace spdkfac::sim
