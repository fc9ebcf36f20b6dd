// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "spdkfac/runtime/step_events.h"

// Events of a step at times that are written down.
namespace spdkfac::support {

// A moment so many seconds after the start of the step.
inline runtime::TimeMark at_second(double seconds) {
  runtime::TimeMark mark;
  mark.time += std::chrono::duration_cast<runtime::TimeMark::Clock::duration>(
      std::chrono::duration<double>(seconds));
  return mark;
}

inline runtime::StepEvent step_event(runtime::StepPart part,
                                     std::vector<runtime::StepEvent::Share> shares, double begin,
                                     double end, const std::string& name = "") {
  return {part, name, std::move(shares), at_second(begin), at_second(end)};
}

}  // namespace spdkfac::support
