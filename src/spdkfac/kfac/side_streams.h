// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <c10/core/Stream.h>

namespace spdkfac::kfac {

// Runs independent tasks side by side on a GPU, each on a stream of its own; the first, which
// should be the longest, before the others where they compete for the GPU. They start
// behind everything queued on the current stream, which goes on behind all of them; the host waits
// for nothing. What a task allocates must stay inside it, and what it reads must outlive the call
// or be as old as the streams. On the CPU tasks run one after the other.
class SideStreams {
 public:
  void run(c10::Device device, std::size_t tasks, const std::function<void(std::size_t)>& task);

 private:
  std::vector<c10::Stream> streams_;
};

}  // namespace spdkfac::kfac
