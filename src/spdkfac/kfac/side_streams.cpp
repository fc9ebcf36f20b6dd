// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/side_streams.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace spdkfac::kfac {

void SideStreams::run(c10::Device device, std::size_t tasks,
                      const std::function<void(std::size_t)>& task) {
  if (device.is_cpu()) {
    for (std::size_t index = 0; index < tasks; ++index) task(index);
    return;
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  while (streams_.size() < tasks) {
    streams_.push_back(guard.getStreamFromGlobalPool(device, /*isHighPriority=*/streams_.empty()));
  }
  const c10::Stream current = guard.getStream(device);
  c10::Event ready(device.type());
  ready.record(current);
  for (const c10::Stream& stream : streams_) ready.block(stream);
  for (std::size_t index = 0; index < tasks; ++index) {
    const c10::StreamGuard on_side(streams_[index % streams_.size()]);
    task(index);
  }
  for (const c10::Stream& stream : streams_) {
    c10::Event done(device.type());
    done.record(stream);
    done.block(current);
  }
}

}  // namespace spdkfac::kfac
