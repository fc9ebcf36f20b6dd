// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/nccl/nccl_watch.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/cuda/gpu_clock.h"

namespace spdkfac::comm {
namespace {

constexpr std::chrono::milliseconds kInterval{20};  // between two checks
constexpr std::chrono::seconds kReturn{1};          // for a call of NCCL to return

std::string message(ncclResult_t result, const std::string& place) {
  return fmt::format(
      "nccl: {} failed ({}); check the output of the other ranks, and set NCCL_DEBUG=WARN for "
      "details",
      place, ncclGetErrorString(result));
}

}  // namespace

void check_nccl(ncclResult_t result, const std::string& place) {
  if (result != ncclSuccess) throw CommError(message(result, place));
}

NcclWatch::NcclWatch(ncclComm_t comm, std::chrono::milliseconds timeout)
    : comm_(comm), timeout_(timeout), thread_([this] { watch(); }) {}

void NcclWatch::close() noexcept {
  if (!thread_.joinable()) return;
  const bool drain = std::uncaught_exceptions() == 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !drain || !failure_.empty() || items_.empty(); });
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (!failure_.empty()) return;  // aborted
  if (drain) {
    ncclCommDestroy(comm_);
  } else {
    ncclCommAbort(comm_);
  }
}

NcclWatch::Events NcclWatch::queue(const std::string& place, const c10::Stream& stream,
                                   const std::function<ncclResult_t(ncclComm_t)>& call) {
  const Events events{.reached = std::make_shared<c10::Event>(GpuClock::event()),
                      .ended = std::make_shared<c10::Event>(GpuClock::event())};
  events.reached->record(stream);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw CommError(failure_);
    calling_ = Call{.place = place, .since = awake_.now()};
  }
  // Called without the lock: it may block until the watching thread aborts it.
  const ncclResult_t result = call(comm_);
  {
    const std::lock_guard lock(mutex_);
    calling_.reset();
  }
  changed_.notify_all();
  if (result != ncclSuccess) give_up(message(result, place));
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw CommError(failure_);
  events.ended->record(stream);
  items_.push_back({.place = place, .events = events});
  return events;
}

bool NcclWatch::failed() const {
  const std::lock_guard lock(mutex_);
  return !failure_.empty();
}

void NcclWatch::check() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw CommError(failure_);
}

void NcclWatch::watch() {
  try {
    for (;;) {
      std::optional<std::string> problem;
      {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, kInterval, [this] { return stopping_; })) return;
        if (!failure_.empty()) return;
        problem = find_problem();
      }
      changed_.notify_all();
      if (problem) give_up(*problem);
    }
  } catch (const std::exception& error) {
    give_up(fmt::format("nccl: {}", error.what()));
  }
}

std::optional<std::string> NcclWatch::find_problem() {
  awake_.tick();
  while (!items_.empty() && items_.front().events.ended->query()) items_.pop_front();
  ncclResult_t state = ncclSuccess;
  ncclCommGetAsyncError(comm_, &state);
  if (state != ncclSuccess && state != ncclInProgress) {
    return message(state, items_.empty() ? "the communicator" : items_.front().place);
  }
  const auto late = [this](const std::string& place,
                           AwakeClock::Clock::duration since) -> std::optional<std::string> {
    const auto waited = awake_.now() - since;
    if (waited <= timeout_) return std::nullopt;
    return fmt::format(
        "nccl: {} has not ended after {:.1f} s; another rank died, stopped, or called a different "
        "collective: check the output of the other ranks, or set a timeout longer than {:g} s",
        place, std::chrono::duration<double>(waited).count(),
        std::chrono::duration<double>(timeout_).count());
  };
  if (calling_) return late(calling_->place, calling_->since);
  if (items_.empty()) return std::nullopt;
  Item& first = items_.front();
  if (!first.since && first.events.reached->query()) first.since = awake_.now();
  return first.since ? late(first.place, *first.since) : std::nullopt;
}

void NcclWatch::give_up(const std::string& message) {
  {
    std::unique_lock lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = message;
    // Let a call that is about to return do so before the abort; the abort is for calls that hang.
    changed_.wait_for(lock, kReturn, [this] { return !calling_; });
  }
  changed_.notify_all();
  ncclCommAbort(comm_);
}

}  // namespace spdkfac::comm
