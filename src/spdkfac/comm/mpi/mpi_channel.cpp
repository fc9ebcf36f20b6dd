// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/mpi/mpi_channel.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac::comm {
namespace {

// Small operations wait for latency, not bandwidth: eight of 64 KiB started together take about as
// long as one. A single operation of more than a mebibyte keeps the link busy.
constexpr std::size_t kMaxOutstanding = 8;
constexpr Bytes kMaxOutstandingBytes = kMebibyte;
// More than can be outstanding, and no more than every MPI supports.
constexpr std::int64_t kTags = 32768;

// The thread sleeps between polls, and longer each time while nothing happens: short pauses are for
// small operations, which end soon, and long ones for operations that wait for another rank.
// Polling every 100 µs costs a fifth of a core, so after a longer idle time the thread polls less
// often; it notices an end late by at most 1/kLatePart of that time.
constexpr std::chrono::microseconds kShortestPause{5};
constexpr std::chrono::microseconds kLongPause{100};
constexpr std::chrono::microseconds kLongestPause{400};
constexpr int kLatePart = 8;
// A poll that takes longer than this has moved data, so the next one follows soon.
constexpr std::chrono::microseconds kIdlePoll{10};

// By default the kernel may extend a sleep by 50 µs to save wake-ups.
void sleep_exactly() {
#ifdef __linux__
  prctl(PR_SET_TIMERSLACK, 1000UL);
#endif
}

Bytes size_of(const Request& request) {
  const at::Tensor& larger = request.output.defined() ? request.output : request.tensor;
  return Bytes(larger.defined() ? static_cast<std::int64_t>(larger.nbytes()) : 0);
}

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

MpiChannel::MpiChannel(const CommOptions& options)
    : options_(options), world_(begin_using_mpi(*this, options)) {
  thread_ = std::thread([this] { run(); });
}

MpiChannel::~MpiChannel() { stop(/*drain=*/std::uncaught_exceptions() == 0); }

std::shared_ptr<Work::State> MpiChannel::submit(Request request) {
  auto work = std::make_shared<QueuedWork>();
  Entry entry{.request = std::move(request), .work = work};
  if (Staging::needed(entry.request)) entry.staging.emplace(entry.request);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw CommError(failure_);
    if (stopping_) throw CommError("mpi: the process is exiting; start operations before its exit");
    queue_.push_back(std::move(entry));
  }
  wakeup_.notify_one();
  return work;
}

void MpiChannel::stop(bool drain) noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    abandon_ = !drain;
  }
  wakeup_.notify_one();
  if (!thread_.joinable()) return;
  thread_.join();
  end_using_mpi(failure_);
}

void MpiChannel::run() {
  try {
    const at::NoGradGuard no_grad;
    sleep_exactly();
    while (take()) {
      awake_.tick();
      advance();
      check_timeouts();
    }
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

// Takes what may be started from the queue; false when everything is done and no more will come.
bool MpiChannel::take() {
  std::unique_lock lock(mutex_);
  if (outstanding_.empty()) {
    wakeup_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
  } else {
    wakeup_.wait_for(lock, pause_, [this] { return abandon_ || (!queue_.empty() && has_room()); });
  }
  if (outstanding_.empty() && queue_.empty()) return false;
  if (abandon_) {
    throw CommError(
        fmt::format("mpi: rank {} of {} stopped with {} operations under way; see its first error",
                    world_.rank, world_.size, outstanding_.size() + queue_.size()));
  }
  while (!queue_.empty() && has_room()) {
    moved_ = Clock::now();
    pause_ = kShortestPause;
    outstanding_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return true;
}

// Whether the first operation of the queue may be started beside the outstanding ones.
bool MpiChannel::has_room() const {
  if (outstanding_.empty()) return true;
  if (outstanding_.size() >= kMaxOutstanding) return false;
  Bytes total = size_of(queue_.front().request);
  for (const Entry& entry : outstanding_) total += size_of(entry.request);
  return total <= kMaxOutstandingBytes;
}

void MpiChannel::advance() {
  bool in_turn = true;  // no operation overtakes one that still waits for the device
  for (Entry& entry : outstanding_) {
    if (entry.operation) continue;
    if (entry.staging && !entry.staging->fetching()) {
      if (!side_) side_ = Staging::side_stream(entry.request);
      entry.staging->fetch(*side_, world_.rank);
    }
    in_turn = in_turn && (!entry.staging || entry.staging->fetched());
    if (in_turn) start(entry);
  }
  const Clock::time_point before = Clock::now();
  const auto ended = std::erase_if(outstanding_, [this](Entry& entry) {
    if (!entry.operation || !entry.operation->test()) return false;
    succeed(entry);
    return true;
  });
  const Clock::time_point now = Clock::now();
  if (ended > 0 || now - before > kIdlePoll) {
    moved_ = now;
    pause_ = kShortestPause;
  } else {
    const auto idle = std::chrono::duration_cast<std::chrono::microseconds>(now - moved_);
    pause_ = std::min(2 * pause_, std::clamp(idle / kLatePart, kLongPause, kLongestPause));
  }
}

void MpiChannel::start(Entry& entry) {
  entry.begin = Clock::now();
  entry.awake_at_begin = awake_.now();
  entry.operation = std::make_unique<MpiOperation>(
      entry.staging ? entry.staging->on_host() : entry.request, world_, options_.max_piece_elements,
      static_cast<int>(started_++ % kTags));
}

void MpiChannel::succeed(Entry& entry) {
  const OperationSpan span{.begin = entry.begin, .end = Clock::now()};
  std::optional<c10::Event> arrived;
  if (entry.staging) arrived = entry.staging->put_back(*side_, world_.rank);
  entry.work->succeed(span, std::move(arrived));
}

void MpiChannel::check_timeouts() const {
  for (const Entry& entry : outstanding_) {
    if (!entry.operation) return;
    const Clock::duration waited = awake_.now() - entry.awake_at_begin;
    if (waited <= options_.timeout) continue;
    throw CommError(fmt::format(
        "mpi: {} has not ended after {:.1f} s; another rank died, stopped, or called a different "
        "collective: check the output of the other ranks, or set a timeout longer than {:g} s",
        place_of(entry.request, world_.rank, world_.size), seconds(waited),
        seconds(options_.timeout)));
  }
}

void MpiChannel::fail(const std::string& message) {
  std::deque<Entry> never_started;
  {
    const std::lock_guard lock(mutex_);
    failure_ = message;
    never_started.swap(queue_);
  }
  for (Entry& entry : outstanding_) entry.work->fail(message);
  for (Entry& entry : never_started) entry.work->fail(message);
  // MPI may still read and write these tensors.
  static auto* const kept = new std::vector<std::deque<Entry>>;
  kept->push_back(std::move(outstanding_));
}

}  // namespace spdkfac::comm
