// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "spdkfac/sim/simulated_ranks.h"

namespace spdkfac::sim {

// Whether a broadcast leaves in a step that renews the inverses of these layers (empty: all): the
// inverses of others stay with their owners.
bool leaves(const ResultBroadcast& broadcast, const Plan& plan, const std::vector<bool>& renewed);

// Inversions, the broadcasts of what owners made, and preconditioning. Returns how long each stream
// inverted.
std::vector<Seconds> simulate_inverse_stage(const StepToSimulate& step, SimulatedRanks& ranks);

}  // namespace spdkfac::sim
