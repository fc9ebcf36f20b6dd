// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/timing.h"

#include <algorithm>
#include <ctime>
#include <numeric>
#include <random>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "spdkfac/base/median.h"
#include "spdkfac/comm/rank_values.h"

namespace spdkfac::calibrate {
namespace {

// Fits need times above 0, which a clock of this resolution may not give.
constexpr double kShortest = 1e-9;

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds of one run, on this rank.
double sample(const Bench& bench, const Task& task) {
  const clockid_t clock = task.own_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  wait_for_device(bench.device);
  bench.communicator.barrier("calibrate: " + task.name);
  const double begin = seconds_of(clock);
  for (std::int64_t call = 0; call < task.calls; ++call) task.run();
  if (!task.own_time) wait_for_device(bench.device);
  const double taken = seconds_of(clock) - begin;
  if (task.finish) task.finish();
  if (bench.advance) bench.advance();
  return std::max(taken / static_cast<double>(task.calls), kShortest);
}

// Another order in each round, the same on all ranks: what a task leaves behind, such as a full
// buffer of the network or a cold cache, does not always meet the same next one.
std::vector<std::size_t> order_of_round(std::size_t tasks, int round) {
  std::vector<std::size_t> order(tasks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(static_cast<unsigned>(round + 1));
  for (std::size_t left = tasks; left > 1; --left) {
    std::swap(order[left - 1], order[random() % left]);
  }
  return order;
}

// One sample of all ranks: their mean, or the largest.
double joined(const std::vector<std::vector<double>>& by_rank, std::size_t sample, bool mean) {
  double total = 0;
  double largest = 0;
  for (const std::vector<double>& samples : by_rank) {
    total += samples[sample];
    largest = std::max(largest, samples[sample]);
  }
  return mean ? total / static_cast<double>(by_rank.size()) : largest;
}

}  // namespace

void wait_for_device(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

std::vector<Seconds> measure(const Bench& bench, std::span<const Task> tasks, int repetitions) {
  const auto count = static_cast<std::size_t>(repetitions);
  std::vector<double> samples(tasks.size() * count);
  for (int round = -1; round < repetitions; ++round) {
    for (const std::size_t i : order_of_round(tasks.size(), round)) {
      const double seconds = sample(bench, tasks[i]);
      if (round >= 0) samples[i * count + static_cast<std::size_t>(round)] = seconds;
    }
  }
  const auto by_rank = comm::numbers_of_ranks(bench.communicator, bench.device, samples);
  std::vector<Seconds> result;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    std::vector<double> of_task;
    for (std::size_t sample = i * count; sample < (i + 1) * count; ++sample) {
      of_task.push_back(joined(by_rank, sample, tasks[i].each_for_itself));
    }
    result.emplace_back(median(std::move(of_task)));
  }
  return result;
}

}  // namespace spdkfac::calibrate
