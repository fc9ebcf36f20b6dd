// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <nccl.h>

#include "spdkfac/comm/awake_clock.h"

namespace spdkfac::comm {

// Owns an ncclComm_t. A thread checks it for NCCL's asynchronous errors and for operations that do
// not end in time, and aborts it if it finds any, which releases the streams that wait. One thread
// at a time may call queue(); everything else is thread-safe.
class NcclWatch {
 public:
  NcclWatch(ncclComm_t comm, std::chrono::milliseconds timeout);
  ~NcclWatch() { close(); }
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // Before and after an operation on its stream, with times.
  struct Events {
    std::shared_ptr<c10::Event> reached;  // the stream has reached the operation
    std::shared_ptr<c10::Event> ended;
  };
  // Calls NCCL, which queues its work on `stream`. `place` names the operation in messages.
  Events queue(const std::string& place, const c10::Stream& stream,
               const std::function<ncclResult_t(ncclComm_t)>& call);

  // Waits for the queued operations and destroys the communicator; aborts it while an exception
  // unwinds the stack.
  void close() noexcept;

  bool failed() const;
  // Throws a CommError after a failure.
  void check() const;

 private:
  struct Item {
    std::string place;
    Events events;
    std::optional<AwakeClock::Clock::duration> since = {};  // when the stream was seen to reach it
  };
  struct Call {
    std::string place;
    AwakeClock::Clock::duration since;
  };

  void watch();
  std::optional<std::string> find_problem();
  void give_up(const std::string& message);

  ncclComm_t comm_;
  std::chrono::milliseconds timeout_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::string failure_;
  std::optional<Call> calling_;  // NCCL has not returned yet
  std::deque<Item> items_;
  AwakeClock awake_;

  std::thread thread_;
};

// Throws a CommError with NCCL's message unless `result` is ncclSuccess.
void check_nccl(ncclResult_t result, const std::string& place);

}  // namespace spdkfac::comm
