// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/sim/simulated_ranks.h"

namespace spdkfac::sim {

// Forward and backward pass, factors, their messages and those of gradients: until every rank has
// unpacked the factors that it needs and knows what damping needs.
void simulate_passes(const StepToSimulate& step, SimulatedRanks& ranks);

}  // namespace spdkfac::sim
