// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "spdkfac/base/units.h"
#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Seconds that this rank's clock is ahead of rank 0's: rank 0 asks each rank for its time and takes
// it for that of the middle of the round trip, of the shortest one. All ranks call it together.
// `clock` gives seconds; by default the steady clock, which ranks on one host share.
double steady_seconds();
Seconds clock_offset(Communicator& communicator,
                     const std::function<double()>& clock = steady_seconds);

}  // namespace spdkfac
