// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "spdkfac/plan/layer_spec.h"

namespace spdkfac {

// What layers took in steps in which they were timed, the same on all ranks.
struct TimedSteps {
  ModelSpec model;                              // with the means over steps and ranks
  std::vector<std::vector<Slowness>> slowness;  // of each step, of each rank
};

}  // namespace spdkfac
