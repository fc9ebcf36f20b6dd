// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include <c10/core/Event.h>
#include <c10/cuda/CUDAStream.h>

namespace spdkfac::comm {

// Converts events of a GPU to the host's clock. The events must have timing enabled and must be
// complete.
class GpuClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Waits for the stream.
  explicit GpuClock(c10::cuda::CUDAStream stream) {
    stream.synchronize();
    zero_.record(stream.unwrap());
    stream.synchronize();
    zero_time_ = Clock::now();
  }

  static c10::Event event() { return {at::kCUDA, c10::EventFlag::BACKEND_DEFAULT}; }

  Clock::time_point operator()(const c10::Event& event) const {
    return zero_time_ + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double, std::milli>(zero_.elapsedTime(event)));
  }

 private:
  c10::Event zero_ = event();
  Clock::time_point zero_time_;
};

}  // namespace spdkfac::comm
