// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "spdkfac/comm/awake_clock.h"
#include "spdkfac/comm/comm_options.h"
#include "spdkfac/comm/queued_work.h"
#include "spdkfac/comm/signature.h"

namespace spdkfac::comm {

// Ranks that are threads of this process. The n-th operations of all ranks belong together; when
// the last rank has joined one, a communication thread executes it. Thread-safe.
//
// When the calls of two ranks differ, an operation times out or a rank fails, all operations fail.
class ThreadGroup {
 public:
  ThreadGroup(int size, const CommOptions& options);
  // Executes the operations that all ranks have joined; the others fail.
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  int size() const { return size_; }

  // Joins the rank's next operation. Throws a CommError after a failure.
  std::shared_ptr<Work::State> submit(int rank, Request request);

  // The rank will not join any more operations: those that still need it fail.
  void leave(int rank);
  // The rank has failed, and with it the group; `cause` goes into the message.
  void fail(int rank, const std::string& cause);

 private:
  using Clock = AwakeClock::Clock;

  // One operation.
  struct Meeting {
    struct Place {
      Request request;
      std::shared_ptr<QueuedWork> work;  // set when the rank has joined
      Clock::time_point joined;
    };
    Signature signature;  // of the first rank that joined
    int first_rank;
    Clock::duration awake_at_begin;
    std::vector<Place> places;  // by rank
    int ranks = 0;              // that have joined
  };

  void run();
  void execute(Meeting meeting);

  // Call the rest with the mutex locked.
  bool front_is_complete() const;
  Meeting& meeting_of(int rank, const Request& request);
  void fail_if_a_rank_left(const Meeting& meeting);
  void check_timeout(const Meeting& front);
  void set_failure(const std::string& message);

  const int size_;
  const CommOptions options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Meeting> meetings_;       // not executed yet, oldest first
  std::int64_t executed_ = 0;          // operations so far
  Clock::duration awake_at_front_{0};  // when the last one was taken
  std::vector<std::int64_t> joined_;   // by rank: operations so far
  std::vector<bool> left_;             // by rank
  bool stopping_ = false;
  std::string failure_;
  AwakeClock awake_;

  Clock::time_point previous_end_;  // of the last operation; only the communication thread uses it

  std::thread thread_;
};

}  // namespace spdkfac::comm
