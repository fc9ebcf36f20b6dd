// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/base/json.h"
#include "spdkfac/trace/trace.h"

namespace spdkfac {

// One event as a list: rank, lane, category, name, start, duration, and the elements of a message
// (docs/records.md).
Json to_json(const Trace& trace);
// What to_json() gave. Its iteration is the end of the last event.
Trace parse_trace(const JsonValue& events, int world);

}  // namespace spdkfac
