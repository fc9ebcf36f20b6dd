// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

// Copies the tensors of one operation from a device to pinned memory of the host and back, on a
// side stream; the host never waits for the device. The pinned memory comes from torch's allocator,
// which caches it. Not thread-safe.
class Staging {
 public:
  // Whether the operation has tensors that are not on the CPU.
  static bool needed(const Request& request);
  // A stream for copies from and to the operation's device.
  static c10::Stream side_stream(const Request& request);

  // Call it on the thread that starts the operation: the copies follow the work queued there so
  // far.
  explicit Staging(const Request& request);

  // Queues the copy to the host on the side stream.
  void fetch(const c10::Stream& side, int rank);
  bool fetching() const { return fetched_.has_value(); }
  bool fetched() const { return fetched_->query(); }
  // The operation on the host's tensors; valid after fetch().
  const Request& on_host() const { return host_; }
  // Queues the copy to the device; the result is there after the event.
  c10::Event put_back(const c10::Stream& side, int rank);

 private:
  Request device_;
  Request host_;
  c10::Event ready_;
  std::optional<c10::Event> fetched_;
};

}  // namespace spdkfac::comm
