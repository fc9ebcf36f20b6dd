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
    : overheads_(step.costs.overheads),
      options_(options),
      trace_(step.plan.world),
      grid_(step.grid),
      channels_(grid_.workers > 1 ? static_cast<std::size_t>(grid_.columns) : 1) {
  const int world = step.plan.world;
  std::vector<bool> special(static_cast<std::size_t>(world),
                            options.trace || options.jitter > 0 || !options.slow_parts.empty());
  for (const FactorPlacement& factor : step.plan.placements) {
    if (factor.owner) special[static_cast<std::size_t>(*factor.owner)] = true;
  }
  for (const auto& [rank, factor] : options.slow) special[static_cast<std::size_t>(rank)] = true;
  std::vector<std::optional<std::size_t>> ordinary(channels_.size());  // by column
  for (int rank = 0; rank < world; ++rank) {
    const int column = channels_.size() == 1 ? 0 : grid_.column_of(rank);
    std::optional<std::size_t>& together = ordinary[static_cast<std::size_t>(column)];
    const bool shared = !special[static_cast<std::size_t>(rank)];
    stream_of_rank_.push_back(shared && together ? *together : streams_.size());
    if (shared && together) continue;
    if (shared) together = streams_.size();
    const auto slow = options.slow.find(rank);
    streams_.push_back({RankClock(slow == options.slow.end() ? 1.0 : slow->second,
                                  overheads_.compute_rate_under_communication),
                        column});
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

Seconds SimulatedRanks::channel_free() const {
  Seconds free(0);
  for (const Channel& channel : channels_) free = std::max(free, channel.free_at());
  return free;
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
  stream.clock.compute(work, channel(index));
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

// How long a message takes from `start` on: it is slower while any of its ranks computes.
Seconds SimulatedRanks::duration_from(Seconds start, Seconds alone,
                                      std::optional<int> column) const {
  if (!messages_slow()) return alone;
  const double rate = overheads_.communication_rate_under_computation;
  Seconds computing(0);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (column && streams_[i].column != *column) continue;
    computing = std::max(computing, streams_[i].clock.computes_from(start, channel(i)));
  }
  // Either it ends before the computation does, or it loses what the computation costs it.
  return std::min(alone / rate, alone + computing * (1 - rate));
}

Seconds SimulatedRanks::carry(Seconds ready, Seconds alone, Category category, std::uint32_t label,
                              std::int64_t elements, std::optional<int> column) {
  if (looks_ahead_) return ready;
  if (channels_.size() == 1) column.reset();
  const std::size_t first = column ? static_cast<std::size_t>(*column) : 0;
  const std::size_t end = column ? first + 1 : channels_.size();
  Seconds start = ready;
  for (std::size_t c = first; c < end; ++c) start = std::max(start, channels_[c].free_at());
  const Seconds duration = duration_from(start, alone, column);
  for (std::size_t c = first; c < end; ++c) channels_[c].carry(start, duration);
  if (options_.trace && duration > Seconds(0)) {
    for (int rank = 0; rank < trace_.world(); ++rank) {
      if (column && grid_.column_of(rank) != *column) continue;
      trace_.add({rank, label, Lane::kChannel, category, start, duration, elements});
    }
  }
  return start + duration;
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
