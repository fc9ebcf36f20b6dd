// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include <c10/core/Event.h>

#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

// An operation that another thread executes. Thread-safe.
class QueuedWork final : public Work::State {
 public:
  void wait() override;
  bool done() override;
  std::optional<OperationSpan> span() override;

  // Exactly one of these is called, once. The result is on the device after the event `arrived`.
  void succeed(OperationSpan span, std::optional<c10::Event> arrived);
  void fail(std::string message);

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<OperationSpan> span_;   // set on success
  std::optional<std::string> failure_;  // set on failure
  std::optional<c10::Event> arrived_;
};

}  // namespace spdkfac::comm
