// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/time_mark.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace spdkfac::runtime {

TimeMark TimeMark::now(c10::Device device) {
  TimeMark result{.time = Clock::now(), .event = std::nullopt};
  if (!device.is_cpu()) {
    result.event.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    result.event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  return result;
}

Seconds TimeMark::between(const TimeMark& begin, const TimeMark& end) {
  if (begin.event && end.event) {
    end.event->synchronize();
    return Seconds(begin.event->elapsedTime(*end.event) * 1e-3);
  }
  return Seconds(std::chrono::duration<double>(end.time - begin.time).count());
}

}  // namespace spdkfac::runtime
