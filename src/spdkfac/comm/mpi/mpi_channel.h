// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "spdkfac/comm/awake_clock.h"
#include "spdkfac/comm/mpi/mpi_operation.h"
#include "spdkfac/comm/mpi/mpi_process.h"
#include "spdkfac/comm/queued_work.h"
#include "spdkfac/comm/staging.h"

namespace spdkfac::comm {

// The communication thread of a rank. It starts nonblocking operations in the order in which they
// were submitted, several small ones at a time or one large one, and polls them at short intervals.
// It sleeps when there is nothing to do. One thread at a time may call submit() and stop().
//
// When an operation fails or times out, all operations fail and MPI is not called again. Requests
// under way keep their tensors until the process ends.
class MpiChannel final : public MpiUser {
 public:
  explicit MpiChannel(const CommOptions& options);
  // Waits for the submitted operations, or abandons them while an exception unwinds the stack.
  ~MpiChannel() override;
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;

  const MpiWorld& world() const { return world_; }

  // Throws a CommError after a failure.
  std::shared_ptr<Work::State> submit(Request request);

  void stop_at_exit() noexcept override { stop(/*drain=*/false); }

 private:
  using Clock = AwakeClock::Clock;

  struct Entry {
    Request request;
    std::shared_ptr<QueuedWork> work;
    std::optional<Staging> staging = {};           // for tensors on a device
    std::unique_ptr<MpiOperation> operation = {};  // once started
    Clock::time_point begin = {};
    Clock::duration awake_at_begin = {};
  };

  void stop(bool drain) noexcept;

  // Only the communication thread calls the rest.
  void run();
  bool take();
  bool has_room() const;
  void advance();
  void start(Entry& entry);
  void succeed(Entry& entry);
  void check_timeouts() const;
  void fail(const std::string& message);

  const CommOptions options_;
  MpiWorld world_;

  std::mutex mutex_;
  std::condition_variable wakeup_;
  std::deque<Entry> queue_;
  bool stopping_ = false;
  bool abandon_ = false;
  std::string failure_;

  // Only the communication thread uses these.
  std::deque<Entry> outstanding_;
  std::int64_t started_ = 0;            // operations so far
  std::optional<c10::Stream> side_;     // for copies from and to the device
  std::chrono::microseconds pause_{0};  // until the next poll
  Clock::time_point moved_;             // when a poll last found something to do
  AwakeClock awake_;

  std::thread thread_;
};

}  // namespace spdkfac::comm
