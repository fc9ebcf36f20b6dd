// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "spdkfac/comm/mpi/mpi_operation.h"
#include "spdkfac/comm/mpi/mpi_process.h"
#include "spdkfac/comm/patience.h"
#include "spdkfac/comm/queued_work.h"
#include "spdkfac/comm/staging.h"

namespace spdkfac {

// The communication thread of a rank. It starts operations in the order in which they were
// submitted, as nonblocking ones, and asks for their end at short intervals: several small ones at
// once, a large one alone. With nothing to do it sleeps. submit() and stop() are for one thread.
//
// When an operation fails or does not end in time, it and all others fail, and MPI is not called
// again: requests on their way are left as they are, with their tensors, until the process ends.
class MpiChannel final : public MpiUser {
 public:
  explicit MpiChannel(const CommOptions& options);
  // Waits for what was submitted; during an exception, leaves it.
  ~MpiChannel() override;
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;

  const MpiWorld& world() const { return world_; }

  // A CommError after a failure.
  std::shared_ptr<Work::State> submit(Request request);

  void stop_at_exit() noexcept override { stop(/*drain=*/false); }

 private:
  using Clock = Patience::Clock;

  struct Entry {
    Request request;
    std::shared_ptr<QueuedWork> work;
    std::optional<Staging> staging = {};           // of tensors on a device
    std::unique_ptr<MpiOperation> operation = {};  // once started
    Clock::time_point begin = {};
    Clock::duration patience_at_begin = {};
  };

  void stop(bool drain) noexcept;

  // The rest is for the communication thread.
  void run();
  bool take();
  bool has_room() const;
  void advance();
  void start(Entry& entry);
  void succeed(Entry& entry);
  void check_patience() const;
  void fail(const std::string& message);

  const CommOptions options_;
  MpiWorld world_;

  std::mutex mutex_;
  std::condition_variable wakeup_;
  std::deque<Entry> queue_;
  bool stopping_ = false;
  bool abandon_ = false;
  std::string failure_;

  std::deque<Entry> outstanding_;       // of the communication thread alone, as are the next
  std::int64_t started_ = 0;            // operations so far
  std::optional<c10::Stream> side_;     // for copies from and to the device
  std::chrono::microseconds pause_{0};  // until the next poll
  Clock::time_point moved_;             // when a poll last found something to do
  Patience patience_;

  std::thread thread_;
};

}  // namespace spdkfac
