// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Takes the tensors of one operation from a device to pinned memory of the host and back, on a
// stream beside the computation; the host never waits for the device. Pinned memory is that of
// torch's allocator, which keeps and reuses it. One thread at a time.
class Staging {
 public:
  // Whether the operation has tensors that MPI cannot read.
  static bool needed(const Request& request);
  // A stream for the copies of the operation's device.
  static c10::Stream side_stream(const Request& request);

  // On the thread that starts the operation: what is queued there now comes before it.
  explicit Staging(const Request& request);

  // Queues the copy to the host on the side stream.
  void fetch(const c10::Stream& side, int rank);
  bool fetching() const { return fetched_.has_value(); }
  bool fetched() const { return fetched_->query(); }
  // The operation on the tensors of the host; valid after fetch().
  const Request& on_host() const { return host_; }
  // Queues the copy to the device; it is there after the event.
  c10::Event put_back(const c10::Stream& side, int rank);

 private:
  Request device_;
  Request host_;
  c10::Event ready_;
  std::optional<c10::Event> fetched_;
};

}  // namespace spdkfac
