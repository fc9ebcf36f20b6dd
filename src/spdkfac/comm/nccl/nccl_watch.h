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

#include "spdkfac/comm/patience.h"

namespace spdkfac {

// Owns an ncclComm_t and watches what runs on it: a thread looks for NCCL's asynchronous errors and
// for operations that do not end in time, and then aborts it, which frees the streams that wait.
// queue() is for one thread; the rest is thread-safe.
class NcclWatch {
 public:
  NcclWatch(ncclComm_t comm, std::chrono::milliseconds timeout);
  ~NcclWatch() { close(); }
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // Around an operation on its stream, with times.
  struct Events {
    std::shared_ptr<c10::Event> reached;  // the stream has come to it
    std::shared_ptr<c10::Event> ended;
  };
  // Calls NCCL, whose work goes to `stream`. `place` names it in messages.
  Events queue(const std::string& place, const c10::Stream& stream,
               const std::function<ncclResult_t(ncclComm_t)>& call);

  // Ends the communicator: waits for what was queued; during an exception, aborts it.
  void close() noexcept;

  bool failed() const;
  // Throws a CommError after a failure.
  void check() const;

 private:
  struct Item {
    std::string place;
    Events events;
    std::optional<Patience::Clock::duration> since = {};  // when it was seen to be reached
  };
  struct Call {
    std::string place;
    Patience::Clock::duration since;
  };

  void watch();
  std::optional<std::string> look();  // what is wrong
  void give_up(const std::string& message);

  ncclComm_t comm_;
  std::chrono::milliseconds timeout_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::string failure_;
  std::optional<Call> calling_;  // NCCL has not returned yet
  std::deque<Item> items_;
  Patience patience_;

  std::thread thread_;
};

// Throws a CommError with NCCL's own message unless `result` is a success.
void check_nccl(ncclResult_t result, const std::string& place);

}  // namespace spdkfac
