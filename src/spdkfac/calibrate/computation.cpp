// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/computation.h"

#include <algorithm>
#include <cmath>

#include "spdkfac/base/check.h"

namespace spdkfac::calibrate {
namespace {

// Larger inversions are not tried beforehand, but taken to grow with the cube of the dimension.
constexpr double kLargestTrialWork = 512;
// A cubic has four coefficients; one more shows whether it fits.
constexpr std::size_t kFewestDims = 5;
// A sample lasts at least this long: far above the microseconds by which ranks leave a barrier
// apart; and, where ranks take turns on cores, far above such a turn, or half of them would have
// cores to themselves.
constexpr double kShortestSample = 2e-3;
constexpr double kShortestSharedSample = 40e-3;
constexpr double kMostCalls = 2000;

bool is_long(const ComputeTask& task) {
  return task.part == Part::kInverse && task.work > kLargestTrialWork;
}

// Whether one more run of the task may follow before finish().
bool repeatable(const ComputeTask& task) { return task.part != Part::kStart; }

std::vector<Task> tasks_alone(const std::vector<ComputeTask>& tasks) {
  std::vector<Task> result;
  for (const ComputeTask& task : tasks) result.push_back(task.task);
  return result;
}

// Work per second over all tasks of the part, as when they follow each other in a step.
double rate_of(const std::vector<ComputeTask>& tasks, const std::vector<Seconds>& times,
               Part part) {
  double work = 0;
  double seconds = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].part != part) continue;
    work += tasks[i].work;
    seconds += times[i].value();
  }
  return work / seconds;
}

}  // namespace

ComputeStage::ComputeStage(const Bench& bench, std::vector<std::int64_t> dims, std::int64_t batch,
                           int repetitions, std::optional<Seconds> budget)
    : bench_(bench), repetitions_(repetitions) {
  SPDKFAC_CHECK(dims.size() >= kFewestDims && repetitions >= 1, "too little to measure");
  tasks_ = compute_tasks(bench.communicator, bench.device, dims, batch);
  // In a step ranks compute one thing after the other and meet in messages only.
  for (ComputeTask& task : tasks_) task.task.each_for_itself = true;
  std::vector<ComputeTask> trials;
  std::copy_if(tasks_.begin(), tasks_.end(), std::back_inserter(trials),
               [](const ComputeTask& task) { return !is_long(task); });
  // The first sample of a task also loads libraries and fills caches; the second counts.
  const auto times = calibrate::measure(bench, tasks_alone(trials), 1);

  const double shortest = bench.shared_cores ? kShortestSharedSample : kShortestSample;
  std::vector<double> seconds;
  double largest_trial = 0;
  double its_seconds = 0;
  std::size_t next = 0;
  for (ComputeTask& task : tasks_) {
    if (is_long(task)) {
      seconds.push_back(its_seconds * std::pow(task.work / largest_trial, 3));
      continue;
    }
    const double once = times[next++].value();
    if (task.part == Part::kInverse) {
      largest_trial = task.work;
      its_seconds = once;
    }
    if (repeatable(task)) {
      task.task.calls = std::llround(std::clamp(std::ceil(shortest / once), 1.0, kMostCalls));
    }
    seconds.push_back(once * static_cast<double>(task.task.calls));
  }

  // Inversions come first, by dimension.
  std::size_t inversions = dims.size();
  while (true) {
    double round = 0;
    for (const double one : seconds) round += one;
    estimate_ = Seconds(round * (repetitions_ + 1));
    if (!budget || estimate_ <= *budget || inversions <= kFewestDims) break;
    const auto last = static_cast<std::ptrdiff_t>(--inversions);
    seconds.erase(seconds.begin() + last);
    tasks_.erase(tasks_.begin() + last);
  }
}

std::size_t ComputeStage::samples() const {
  return tasks_.size() * static_cast<std::size_t>(repetitions_ + 1);
}

ComputeTimes ComputeStage::measure() const {
  const auto times = calibrate::measure(bench_, tasks_alone(tasks_), repetitions_);
  ComputeTimes result;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i].part == Part::kInverse) result.inverse.push_back({tasks_[i].work, times[i]});
  }
  const auto rate = [&](Part part) { return rate_of(tasks_, times, part); };
  result.rates = {.forward = FlopsPerSecond(rate(Part::kForward)),
                  .factor = FlopsPerSecond(rate(Part::kFactor)),
                  .precondition = FlopsPerSecond(rate(Part::kPrecondition))};
  result.overheads.host_per_tensor = Seconds(1 / rate(Part::kStart));
  result.overheads.pack_per_element = Seconds(1 / rate(Part::kPack));
  result.overheads.unpack_per_element = Seconds(1 / rate(Part::kUnpack));
  return result;
}

}  // namespace spdkfac::calibrate
