// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "spdkfac/trace/trace.h"

namespace spdkfac::trace {

// Joins the traces of ranks, each on its own clock and later by a shift, to one with one channel,
// as the simulator has it: a message is on its way from when the last rank has started it (before,
// the others wait for that rank) until the last rank has it.
Trace joined_traces(const std::vector<Trace>& ranks, const std::vector<Seconds>& shifts);

}  // namespace spdkfac::trace
