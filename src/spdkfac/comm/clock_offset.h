// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "spdkfac/base/units.h"
#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

double steady_seconds();

// How far this rank's clock is ahead of rank 0's. Rank 0 asks each rank for its time and assumes
// that the answer was given in the middle of the shortest round trip. All ranks call it together.
// `clock` returns seconds; the default is the steady clock, which ranks on one host share.
Seconds clock_offset(Communicator& communicator,
                     const std::function<double()>& clock = steady_seconds);

}  // namespace spdkfac::comm
