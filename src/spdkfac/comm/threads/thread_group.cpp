// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/threads/thread_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/threads/collective.h"

namespace spdkfac::comm {
namespace {

// Between two checks for timeouts.
constexpr std::chrono::milliseconds kTimeoutCheckInterval{20};

double to_seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

ThreadGroup::ThreadGroup(int size, const CommOptions& options)
    : size_(size),
      options_(options),
      joined_(static_cast<std::size_t>(size)),
      left_(static_cast<std::size_t>(size)),
      thread_([this] { run(); }) {}

ThreadGroup::~ThreadGroup() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::shared_ptr<Work::State> ThreadGroup::submit(int rank, Request request) {
  auto work = std::make_shared<QueuedWork>();
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw CommError(failure_);
    awake_.tick();
    Meeting& meeting = meeting_of(rank, request);
    const Signature mine(request);
    if (!(mine == meeting.signature)) {
      set_failure(
          different_calls("threads", size_, {rank, mine}, {meeting.first_rank, meeting.signature}));
      throw CommError(failure_);
    }
    Meeting::Place& place = meeting.places[static_cast<std::size_t>(rank)];
    place = {.request = std::move(request), .work = work, .joined = Clock::now()};
    ++meeting.ranks;
    ++joined_[static_cast<std::size_t>(rank)];
    fail_if_a_rank_left(meeting);
    if (!failure_.empty()) throw CommError(failure_);
  }
  changed_.notify_one();
  return work;
}

ThreadGroup::Meeting& ThreadGroup::meeting_of(int rank, const Request& request) {
  const auto index = static_cast<std::size_t>(joined_[static_cast<std::size_t>(rank)] - executed_);
  if (index == meetings_.size()) {
    meetings_.push_back({.signature = Signature(request),
                         .first_rank = rank,
                         .awake_at_begin = awake_.now(),
                         .places = std::vector<Meeting::Place>(static_cast<std::size_t>(size_))});
  }
  return meetings_[index];
}

void ThreadGroup::leave(int rank) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  for (const Meeting& meeting : meetings_) {
    if (meeting.places[static_cast<std::size_t>(rank)].work) continue;
    fail_if_a_rank_left(meeting);
    return;
  }
}

void ThreadGroup::fail_if_a_rank_left(const Meeting& meeting) {
  for (std::size_t rank = 0; rank < left_.size(); ++rank) {
    if (!left_[rank] || meeting.places[rank].work) continue;
    set_failure(fmt::format(
        "threads: {} on rank {} of {} cannot end; rank {} returned without joining it: let all "
        "ranks call the same collectives",
        meeting.signature.text(), meeting.first_rank, size_, rank));
    return;
  }
}

void ThreadGroup::fail(int rank, const std::string& cause) {
  const std::lock_guard lock(mutex_);
  set_failure(fmt::format("threads: rank {} of {} failed ({}); fix the error of that rank", rank,
                          size_, cause));
}

void ThreadGroup::set_failure(const std::string& message) {
  if (!failure_.empty()) return;
  failure_ = message;
  // Operations that all ranks have joined are still executed.
  while (!meetings_.empty() && meetings_.back().ranks < size_) {
    for (Meeting::Place& place : meetings_.back().places) {
      if (place.work) place.work->fail(message);
    }
    meetings_.pop_back();
  }
}

void ThreadGroup::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto ready = [this] { return stopping_ || front_is_complete(); };
    if (meetings_.empty()) {
      changed_.wait(lock, [this] { return stopping_ || !meetings_.empty(); });
    } else {
      changed_.wait_for(lock, kTimeoutCheckInterval, ready);
    }
    awake_.tick();
    if (front_is_complete()) {
      Meeting meeting = std::move(meetings_.front());
      meetings_.pop_front();
      ++executed_;
      awake_at_front_ = awake_.now();
      lock.unlock();
      execute(std::move(meeting));
      lock.lock();
    } else if (stopping_) {
      set_failure("threads: the ranks have ended; use communicators only inside run_ranks()");
      return;
    } else if (!meetings_.empty()) {
      check_timeout(meetings_.front());
    }
  }
}

bool ThreadGroup::front_is_complete() const {
  return !meetings_.empty() && meetings_.front().ranks == size_;
}

void ThreadGroup::execute(Meeting meeting) {
  std::vector<Request> requests;
  for (Meeting::Place& place : meeting.places) requests.push_back(std::move(place.request));
  std::string failure;
  try {
    execute_collective(requests);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  // Give the tensors back before the ranks learn of the end.
  requests.clear();
  const Clock::time_point end = Clock::now();
  for (const Meeting::Place& place : meeting.places) {
    if (failure.empty()) {
      place.work->succeed({.begin = std::max(place.joined, previous_end_), .end = end},
                          std::nullopt);
    } else {
      place.work->fail(failure);
    }
  }
  previous_end_ = end;
}

void ThreadGroup::check_timeout(const Meeting& front) {
  // It waits for the previous operation first.
  const auto waited = awake_.now() - std::max(front.awake_at_begin, awake_at_front_);
  if (waited <= options_.timeout) return;
  std::string missing;
  for (std::size_t rank = 0; rank < front.places.size(); ++rank) {
    if (front.places[rank].work) continue;
    missing += fmt::format("{}{}", missing.empty() ? "rank " : ", rank ", rank);
  }
  set_failure(
      fmt::format("threads: {} on rank {} of {} has not ended after {:.1f} s; {} did not join it: "
                  "let all ranks "
                  "call the same collectives, or set a timeout longer than {:g} s",
                  front.signature.text(), front.first_rank, size_, to_seconds(waited), missing,
                  to_seconds(options_.timeout)));
}

}  // namespace spdkfac::comm
