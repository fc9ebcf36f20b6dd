// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/simulated_ranks.h"

#include <algorithm>
#include <optional>

namespace spdkfac::sim {
namespace {

// A uniform number in [0, 1) that depends on nothing but its arguments (SplitMix64).
double uniform(std::uint64_t seed, std::uint64_t rank, std::uint64_t task) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ULL + (rank << 32) + task;
  for (int round = 0; round < 2; ++round) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    x ^= x >> 31;
  }
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

}  // namespace

SimulatedRanks::SimulatedRanks(const StepToSimulate& step, const SimulationOptions& options)
    : overheads_(step.costs.overheads), options_(options), trace_(step.plan.world) {
  const int world = step.plan.world;
  std::vector<bool> special(static_cast<std::size_t>(world),
                            options.trace || options.jitter > 0 || !options.slow_parts.empty());
  for (const FactorPlacement& factor : step.plan.placements) {
    if (factor.owner) special[static_cast<std::size_t>(*factor.owner)] = true;
  }
  for (const auto& [rank, factor] : options.slow) special[static_cast<std::size_t>(rank)] = true;
  std::optional<std::size_t> ordinary;
  for (int rank = 0; rank < world; ++rank) {
    const bool shared = !special[static_cast<std::size_t>(rank)];
    stream_of_rank_.push_back(shared && ordinary ? *ordinary : streams_.size());
    if (shared && ordinary) continue;
    if (shared) ordinary = streams_.size();
    const auto slow = options.slow.find(rank);
    streams_.push_back({RankClock(slow == options.slow.end() ? 1.0 : slow->second,
                                  overheads_.compute_rate_under_communication)});
  }
}

void SimulatedRanks::reserve(std::size_t events_of_a_rank) {
  if (options_.trace) trace_.reserve(events_of_a_rank * streams_.size());
}

Seconds SimulatedRanks::last() const {
  Seconds last(0);
  for (const Stream& stream : streams_) last = std::max(last, stream.clock.now());
  return last;
}

void SimulatedRanks::all_wait_until(Seconds time) {
  for (Stream& stream : streams_) stream.clock.wait_until(time);
}

// With slow parts, jitter or a trace every rank has a stream of its own, so the index is the rank.
double SimulatedRanks::slowness(std::size_t stream, Category category) const {
  if (options_.slow_parts.empty()) return 1;
  const Slowness& slow = options_.slow_parts[stream];
  if (category == Category::kInverseComp) return slow.inverses;
  return category == Category::kPrecondition ? slow.preconditioning : slow.passes;
}

Seconds SimulatedRanks::compute(std::size_t index, Seconds work, Category category,
                                std::uint32_t label) {
  if (work <= Seconds(0)) return Seconds(0);
  Stream& stream = streams_[index];
  work = work * slowness(index, category);
  if (looks_ahead_) {
    stream.clock.expect(work);
    return Seconds(0);
  }
  if (options_.jitter > 0) {
    const double u = uniform(options_.seed, index, stream.tasks_done++);
    work = work * (1 + options_.jitter * (2 * u - 1));
  }
  const Seconds start = stream.clock.now();
  stream.clock.compute(work, channel_);
  const Seconds duration = stream.clock.now() - start;
  if (options_.trace) {
    trace_.add(
        {static_cast<std::int32_t>(index), label, Lane::kCompute, category, start, duration});
  }
  return duration;
}

void SimulatedRanks::compute_everywhere(Seconds work, Category category, std::uint32_t label) {
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
    compute(stream, work, category, label);
  }
}

// How long a message takes from `start` on: it is slower while any rank computes.
Seconds SimulatedRanks::duration_from(Seconds start, Seconds alone) const {
  if (!messages_slow()) return alone;
  const double rate = overheads_.communication_rate_under_computation;
  Seconds computing(0);
  for (const Stream& stream : streams_) {
    computing = std::max(computing, stream.clock.computes_from(start, channel_));
  }
  // Either it ends before the computation does, or it loses what the computation costs it.
  return std::min(alone / rate, alone + computing * (1 - rate));
}

Seconds SimulatedRanks::carry(Seconds ready, Seconds alone, Category category, std::uint32_t label,
                              std::int64_t elements) {
  if (looks_ahead_) return ready;
  const Seconds start = std::max(ready, channel_.free_at());
  const Seconds duration = duration_from(start, alone);
  const BusyTime busy = channel_.carry(start, duration);
  if (options_.trace && duration > Seconds(0)) {
    for (int rank = 0; rank < trace_.world(); ++rank) {
      trace_.add({rank, label, Lane::kChannel, category, busy.start, duration, elements});
    }
  }
  return busy.end;
}

void SimulatedRanks::expect(std::size_t stream, Seconds work, Category category) {
  streams_[stream].clock.expect(work * slowness(stream, category));
}

std::vector<Seconds> SimulatedRanks::by_rank(const std::vector<Seconds>& by_stream) const {
  std::vector<Seconds> result;
  result.reserve(stream_of_rank_.size());
  for (const std::size_t stream : stream_of_rank_) result.push_back(by_stream[stream]);
  return result;
}

}  // namespace spdkfac::sim
