// SPDX-License-Identifier: Apache-2.0
// Trains random networks with random plans on ranks that are threads.
//   plans   P ranks equal one rank on the joined batch, and a second run bit for bit
//   faults  a rank that throws, leaves, stalls or pauses: every rank ends with the cause
// Usage: plan_stress [--case plans|faults] [--seed S] [--seconds N | --cases N] [--limit N]
// Case i has the seed S+i, so `--seed S+i --cases 1` repeats it, and makes a failing one smaller. A
// finding is printed and ends the run with exit code 1.
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress/fault_case.h"
#include "stress/plan_check.h"

namespace spdkfac::stress {
namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  std::string kind = "plans";
  std::uint32_t seed = 1;
  double seconds = 10;
  std::uint32_t cases = 0;  // 0: as many as there is time for
  double limit = 120;       // seconds of one case
};

std::string repeat_command(const Flags& flags, std::uint32_t seed) {
  return fmt::format("plan_stress --case {} --seed {} --cases 1", flags.kind, seed);
}

// Ends the process when one case takes too long: a hang is a finding, too.
class Watchdog {
 public:
  explicit Watchdog(const Flags& flags) : flags_(flags), thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void begin(std::uint32_t seed, const std::string& text) {
    const std::lock_guard lock(mutex_);
    seed_ = seed;
    text_ = text;
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(flags_.limit));
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(200), [this] { return done_; })) {
      if (Clock::now() < deadline_) continue;
      fmt::print("finding: {} seed {}: has not ended after {} s: {}\nrerun: {}\n", flags_.kind,
                 seed_, flags_.limit, text_, repeat_command(flags_, seed_));
      std::fflush(nullptr);
      std::_Exit(1);
    }
  }

  const Flags& flags_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::uint32_t seed_ = 0;
  std::string text_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::thread thread_;
};

// One way to make a case smaller; false if that changes nothing.
using Reduction = bool (*)(PlanCase&);
constexpr Reduction kReductions[] = {
    [](PlanCase& one) { return !one.net.blocks.empty() && (one.net.blocks.pop_back(), true); },
    [](PlanCase& one) {
      return !one.net.blocks.empty() && (one.net.blocks.erase(one.net.blocks.begin()), true);
    },
    [](PlanCase& one) { return one.save_after && (one.save_after.reset(), true); },
    [](PlanCase& one) { return one.discard_before && (one.discard_before.reset(), true); },
    [](PlanCase& one) { return one.profile_steps > 0 && (one.profile_steps = 0, true); },
    [](PlanCase& one) { return one.passes > 1 && (one.passes = 1, true); },
    [](PlanCase& one) { return one.synchronize && (one.synchronize = false, true); },
    [](PlanCase& one) { return !one.send_gradients && (one.send_gradients = true, true); },
    [](PlanCase& one) { return one.kfac.trace && (one.kfac.trace = false, true); },
    [](PlanCase& one) { return one.kfac.kl_clip > 0 && (one.kfac.kl_clip = 0, true); },
    [](PlanCase& one) {
      return keeps_basis(one.kfac.solver) && (one.kfac.solver = Solver::kInverse, true);
    },
    [](PlanCase& one) {
      return one.kfac.identity_start && (one.kfac.identity_start = false, true);
    },
    [](PlanCase& one) {
      return one.kfac.convention != Convention::kKfc &&
             (one.kfac.convention = Convention::kKfc, true);
    },
    [](PlanCase& one) {
      return one.kfac.inverse_interval > 1 &&
             (one.kfac.inverse_interval = one.kfac.factor_interval = 1, true);
    },
    [](PlanCase& one) {
      return one.source == Source::kChanged && (one.source = Source::kCosts, true);
    },
    [](PlanCase& one) {
      const bool later = one.save_after && *one.save_after > one.steps - 2;
      return one.steps > 1 && !later && (--one.steps, true);
    },
    [](PlanCase& one) {
      if (one.world < 3) return false;
      one.later_world = one.later_world == one.world ? one.world - 1 : one.later_world;
      --one.world;
      return true;
    },
};

// The smallest case that still fails, by removing one thing at a time.
PlanCase shrunk(PlanCase one, const std::function<bool(const PlanCase&)>& fails) {
  const auto end = Clock::now() + std::chrono::seconds(20);
  bool smaller = true;
  while (smaller && Clock::now() < end) {
    smaller = false;
    for (const Reduction reduce : kReductions) {
      PlanCase next = one;
      if (!reduce(next) || !fails(next)) continue;
      one = next;
      smaller = true;
    }
  }
  return one;
}

std::string crash_text(const Flags& flags, std::uint32_t seed, const std::string& text) {
  return fmt::format("finding: {} seed {}: crashed: {}\nrerun: {}\n", flags.kind, seed, text,
                     repeat_command(flags, seed));
}

// What a crash is about.
std::string current_case;

// The thread sanitizer ends a process that was forked beside threads.
#if defined(__SANITIZE_THREAD__)
constexpr bool kForks = false;
#else
constexpr bool kForks = true;
#endif

// The check in a process of its own, so that a crash is a finding like others.
std::optional<std::string> check_apart(const PlanCase& one) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("plan_stress: no pipe");
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    current_case.clear();
    at::set_num_threads(1);
    const std::string text = check_plan(one).value_or("");
    const bool written = write(ends[1], text.data(), text.size()) >= 0;
    std::_Exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> chunk;
  for (ssize_t size = 0; (size = read(ends[0], chunk.data(), chunk.size())) > 0;) {
    text.append(chunk.data(), static_cast<std::size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return fmt::format("crashed with signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) {
    return fmt::format("ended with exit code {}: {}", WEXITSTATUS(status), text);
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

void report_crash(int number) {
  std::fputs(current_case.c_str(), stdout);
  std::fflush(stdout);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void report(const Flags& flags, std::uint32_t seed, const std::string& what,
            const std::string& text) {
  fmt::print("finding: {} seed {}: {}: {}\nrerun: {}\n", flags.kind, seed, what, text,
             repeat_command(flags, seed));
}

bool run_plan(const Flags& flags, std::uint32_t seed, Watchdog& watchdog, PlanTotals& totals) {
  const PlanCase one = random_plan_case(seed);
  current_case = crash_text(flags, seed, text_of(one));
  watchdog.begin(seed, text_of(one));
  if (flags.cases != 1 || !kForks) {
    const auto finding = check_plan(one, &totals);
    if (finding) report(flags, seed, *finding, text_of(one));
    return !finding;
  }
  const auto finding = check_apart(one);
  if (!finding) return true;
  const PlanCase smallest =
      shrunk(one, [](const PlanCase& next) { return check_apart(next).has_value(); });
  report(flags, seed, check_apart(smallest).value_or(*finding),
         text_of(smallest) + "\nwhole case: " + text_of(one));
  return false;
}

bool run_fault(const Flags& flags, std::uint32_t seed, Watchdog& watchdog, FaultTotals& totals) {
  const FaultCase one = random_fault_case(seed);
  current_case = crash_text(flags, seed, text_of(one));
  watchdog.begin(seed, text_of(one));
  const auto finding = check_fault(one, totals);
  if (finding) report(flags, seed, *finding, text_of(one));
  return !finding;
}

int run(const Flags& flags) {
  // Torch's threads do not survive a fork.
  const bool forks = kForks && flags.kind == "plans" && flags.cases == 1;
  if (!forks) at::set_num_threads(1);
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(number, report_crash);
  Watchdog watchdog(flags);
  PlanTotals plans;
  FaultTotals faults;
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const std::uint32_t most = flags.cases > 0 ? flags.cases : std::numeric_limits<int>::max();
  std::uint32_t cases = 0;
  bool good = true;
  for (; good && cases < most && (flags.cases == 1 || elapsed() < flags.seconds); ++cases) {
    good = flags.kind == "plans" ? run_plan(flags, flags.seed + cases, watchdog, plans)
                                 : run_fault(flags, flags.seed + cases, watchdog, faults);
  }
  fmt::print("{}: {} cases from seed {} in {:.1f} s; {}\n", flags.kind, cases, flags.seed,
             elapsed(), flags.kind == "plans" ? text_of(plans) : text_of(faults));
  return good ? 0 : 1;
}

}  // namespace
}  // namespace spdkfac::stress

int main(int argc, char** argv) {
  spdkfac::stress::Flags flags;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--case" && (value == "plans" || value == "faults")) {
      flags.kind = value;
    } else if (flag == "--seed" && !value.empty()) {
      flags.seed = static_cast<std::uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    } else if (flag == "--seconds" && !value.empty()) {
      flags.seconds = std::atof(value.c_str());
    } else if (flag == "--cases" && !value.empty()) {
      flags.cases = static_cast<std::uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    } else if (flag == "--limit" && !value.empty()) {
      flags.limit = std::atof(value.c_str());
    } else {
      fmt::print(
          stderr,
          "plan_stress: flags: {} {} is unknown; use --case plans|faults, --seed S, --seconds "
          "N, --cases N, --limit N\n",
          flag, value);
      return 2;
    }
  }
  return spdkfac::stress::run(flags);
}
