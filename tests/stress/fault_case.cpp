// SPDX-License-Identifier: Apache-2.0
#include "stress/fault_case.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac::stress {
namespace {

using namespace std::chrono_literals;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::chrono::milliseconds kTimeout = 6s;
#else
constexpr std::chrono::milliseconds kTimeout = 2s;
#endif
constexpr std::chrono::milliseconds kPatience = 60s;  // of a run that a pause must not disturb
const char* const kFaultNames[] = {"throw", "leave", "stall", "pause"};
const char* const kMomentNames[] = {"begin", "forward", "backward", "step"};

// Unwinds a rank's function as a return would.
struct Left : std::exception {
  const char* what() const noexcept override { return "stress: this rank leaves"; }
};

std::string cause_of(const FaultCase& one) {
  return fmt::format("stress: rank {} gives up in step {}", one.rank, one.step);
}

// How the ranks of a run have ended.
class Endings {
 public:
  explicit Endings(int world) : world_(world) {}

  // Empty without an error. What is no CommError is kept with a mark, so that it matches nothing.
  void note(int rank, const std::exception_ptr& error) {
    std::string text;
    try {
      if (error) std::rethrow_exception(error);
    } catch (const CommError& caught) {
      text = caught.what();
    } catch (const std::exception& caught) {
      text = fmt::format("no CommError: {}", caught.what());
    }
    const std::lock_guard lock(mutex_);
    texts_[rank] = text;
    failed_ = failed_ || error;
    changed_.notify_all();
  }

  // Until another rank has failed, or all others have ended.
  void wait_for_others() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience,
                      [this] { return failed_ || static_cast<int>(texts_.size()) == world_ - 1; });
  }

  // The errors of ranks, once all have ended.
  const std::map<int, std::string>& texts() const { return texts_; }

 private:
  int world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::string> texts_;
  bool failed_ = false;
};

AtMoment fault_of(const FaultCase& one, Endings& endings) {
  return [one, &endings](int rank, std::int64_t step, Moment moment) {
    if (rank != one.rank || step != one.step || moment != one.moment) return;
    switch (one.fault) {
      case Fault::kThrow:
        throw std::runtime_error(cause_of(one));
      case Fault::kLeave:
        throw Left();
      case Fault::kStall:
        endings.wait_for_others();
        return;
      case Fault::kPause:
        std::this_thread::sleep_for(20ms);
        return;
    }
  };
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Whether all messages may have left already, so that nobody misses the rank: at the end, and
// behind the backward pass of a step that broadcasts nothing.
bool nobody_waits(const FaultCase& one) {
  return one.step == one.plan.steps - 1 &&
         (one.moment == Moment::kAfterStep || one.moment == Moment::kAfterBackward);
}

// The error that a case owes to run_ranks' caller.
std::string first_error_of(const FaultCase& one) {
  return one.fault == Fault::kThrow ? cause_of(one) : Left().what();
}

bool names_failed_rank(const FaultCase& one, const std::string& text) {
  if (one.fault == Fault::kStall) {
    const std::size_t missing = text.find(" s; rank ");
    return contains(text, "has not ended after") && missing != std::string::npos &&
           contains(text.substr(missing), fmt::format("rank {}", one.rank)) &&
           contains(text.substr(missing), "did not join it");
  }
  return contains(text, fmt::format("threads: rank {} of {} failed ({})", one.rank, one.plan.world,
                                    first_error_of(one)));
}

// What is wrong with the errors of the ranks that did nothing wrong.
std::optional<std::string> check_others(const FaultCase& one, const Endings& endings) {
  for (const auto& [rank, text] : endings.texts()) {
    if (rank == one.rank || (text.empty() && nobody_waits(one))) continue;
    if (text.empty()) return fmt::format("rank {} noticed nothing", rank);
    if (!names_failed_rank(one, text)) {
      return fmt::format("rank {} does not name the failed rank ({})", rank, text);
    }
  }
  return std::nullopt;
}

// The run's error; empty if it trained to the end, and then with the parameters it owes.
std::string error_of_run(const FaultCase& one, Endings& endings) {
  const bool stalls = one.fault == Fault::kStall;
  const CommOptions options{.timeout = stalls ? kTimeout : kPatience};
  Trained trained;
  try {
    trained = train_on_threads(
        one.plan, fault_of(one, endings), std::nullopt, options,
        [&](int rank, const std::exception_ptr& error) { endings.note(rank, error); });
  } catch (const std::exception& caught) {
    return caught.what();
  }
  const Trained expected = train_on_threads(
      one.plan, [](int, std::int64_t, Moment) {}, std::nullopt);
  for (const at::Tensor& of_rank : trained.ranks) {
    if (!at::equal(of_rank, expected.ranks.front())) return "trained to other parameters";
  }
  return "";
}

}  // namespace

FaultCase random_fault_case(std::uint32_t seed) {
  support::Random random(seed);
  FaultCase one;
  do {
    one.plan = random_plan_case(static_cast<std::uint32_t>(random.integer(0, 1 << 30)));
    one.plan.synchronize = false;
    one.plan.save_after.reset();
  } while (may_refuse(one.plan));
  one.plan.seed = seed;
  one.fault = static_cast<Fault>(random.integer(0, 3));
  one.rank = static_cast<int>(random.integer(0, one.plan.world - 1));
  one.step = random.integer(0, one.plan.steps - 1);
  one.moment = static_cast<Moment>(random.integer(0, 3));
  return one;
}

std::string text_of(const FaultCase& one) {
  return fmt::format("rank {}: {} in step {} after {}; {}", one.rank,
                     kFaultNames[static_cast<std::size_t>(one.fault)], one.step,
                     kMomentNames[static_cast<std::size_t>(one.moment)], text_of(one.plan));
}

std::string text_of(const FaultTotals& totals) {
  return fmt::format("{} ended with the cause on every rank, {} trained to the end", totals.failed,
                     totals.trained);
}

std::optional<std::string> check_fault(const FaultCase& one, FaultTotals& totals) {
  const bool stalls = one.fault == Fault::kStall;
  const auto begin = std::chrono::steady_clock::now();
  Endings endings(one.plan.world);
  const std::string error = error_of_run(one, endings);
  const auto took = std::chrono::steady_clock::now() - begin;
  if (error.empty()) {
    const bool may = one.fault == Fault::kPause || (stalls && nobody_waits(one));
    if (!may) return "trained to the end in spite of the fault";
    ++totals.trained;
    return std::nullopt;
  }
  if (one.fault == Fault::kPause) return fmt::format("a pause is an error ({})", error);
  const bool first = stalls ? names_failed_rank(one, error) : error == first_error_of(one);
  if (!first) return fmt::format("not the first error ({})", error);
  if (auto wrong = check_others(one, endings)) return wrong;
  if (took > kPatience) return "the ranks waited for the timeout instead of the failed rank";
  ++totals.failed;
  return std::nullopt;
}

}  // namespace spdkfac::stress
