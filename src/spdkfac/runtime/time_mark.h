// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include <c10/core/Event.h>

#include "spdkfac/base/units.h"

namespace spdkfac::runtime {

// A moment: of the host, or of the work on a GPU's current stream, which is read only later.
struct TimeMark {
  using Clock = std::chrono::steady_clock;

  static TimeMark now(c10::Device device);
  // From begin to end; waits for the GPU.
  static Seconds between(const TimeMark& begin, const TimeMark& end);

  Clock::time_point time;
  std::optional<c10::Event> event;
};

}  // namespace spdkfac::runtime
