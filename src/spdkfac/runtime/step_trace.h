// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/runtime/step_events.h"
#include "spdkfac/trace/trace.h"

namespace spdkfac::runtime {

// The part of a breakdown that an event belongs to.
Category category_of(StepPart part);

// The step as a trace of one rank. What lies between events is forward, backward and update; behind
// the passes it prepares the next event and counts as that. Waits for the GPU.
Trace trace_of(const StepEvents& step);

}  // namespace spdkfac::runtime
