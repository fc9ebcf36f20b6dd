// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include <c10/core/Event.h>

#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// An operation that another thread carries out. Thread-safe.
class QueuedWork final : public Work::State {
 public:
  void wait() override;
  bool done() override;
  std::optional<OperationSpan> span() override;

  // Ends it; one of them is called once. `arrived`: the result is on the device after this event.
  void succeed(OperationSpan span, std::optional<c10::Event> arrived);
  void fail(std::string message);

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<OperationSpan> span_;   // when it has succeeded
  std::optional<std::string> failure_;  // when it has failed
  std::optional<c10::Event> arrived_;
};

}  // namespace spdkfac
