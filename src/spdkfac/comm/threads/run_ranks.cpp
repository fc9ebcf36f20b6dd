// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/threads.h"
#include "spdkfac/comm/threads/thread_group.h"

namespace spdkfac::comm {
namespace {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  Work start(Request request) override {
    if (request.tensor.defined() && !request.tensor.is_cpu()) {
      throw ConfigError(fmt::format(
          "threads: {} has a tensor on {}; ranks that are threads take CPU tensors only",
          place_of(request, rank_, size()), request.tensor.device().str()));
    }
    return Work(group_->submit(rank_, std::move(request)));
  }

 private:
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

// The error that was thrown first, by any rank.
class FirstError {
 public:
  void set(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

// The error is noted before the group fails, so the CommErrors that follow from it come later.
void run_rank(const std::shared_ptr<ThreadGroup>& group, int rank, const RankFunction& function,
              FirstError& first_error) {
  try {
    function(std::make_shared<ThreadCommunicator>(group, rank));
    group->leave(rank);
  } catch (const std::exception& error) {
    first_error.set(std::current_exception());
    group->fail(rank, error.what());
  } catch (...) {
    first_error.set(std::current_exception());
    group->fail(rank, "an exception without a message");
  }
}

}  // namespace
}  // namespace spdkfac::comm

namespace spdkfac {

void run_ranks(int size, const RankFunction& function, const CommOptions& options) {
  if (size < 1) {
    throw ConfigError(fmt::format("threads: run_ranks needs one rank or more (size={})", size));
  }
  const auto group = std::make_shared<comm::ThreadGroup>(size, options);
  comm::FirstError first_error;
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] { comm::run_rank(group, rank, function, first_error); });
    }
  } catch (const std::exception& error) {  // the system has no more threads
    first_error.set(std::current_exception());
    group->fail(static_cast<int>(threads.size()), error.what());
  }
  for (std::thread& thread : threads) thread.join();
  first_error.rethrow();
}

}  // namespace spdkfac
