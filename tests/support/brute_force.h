// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "spdkfac/plan/fusion_planner.h"

// Slow and obvious answers to what the planners compute cleverly.
namespace spdkfac::support {

using Partition = std::vector<plan::MessageRange>;

// The channel's busy intervals, in order.
using BusyTimes = std::vector<std::pair<double, double>>;

// The time T at which computation has done `work`, running at `rate` while the channel is busy:
// T − (1 − rate)·busy(T) = work. Walks along the intervals.
inline double time_of_work(double work, double rate, const BusyTimes& busy) {
  double now = 0;
  double done = 0;
  for (const auto& [start, finish] : busy) {
    if (done + (start - now) >= work) break;
    done += start - now;
    now = start;
    const double during = rate * (finish - start);
    if (done + during >= work) return now + (work - done) / rate;
    done += during;
    now = finish;
  }
  return now + (work - done);
}

// What a partition costs: when channel and computation are done, and how long the channel was busy.
struct PartitionCost {
  double end = 0;
  double busy = 0;
};

inline PartitionCost evaluate(std::span<const plan::FusionItem> items, const Partition& messages,
                              const CostModel& costs, double channel_free = 0) {
  const double rate = costs.overheads.compute_rate_under_communication;
  BusyTimes busy;
  double free = channel_free;
  PartitionCost cost;
  for (const plan::MessageRange& range : messages) {
    std::int64_t elements = 0;
    std::int64_t tensors = 0;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      elements += items[i].elements;
      tensors += items[i].tensors;
    }
    const CollectiveCost& collective =
        items[range.begin].route.op == CollectiveOp::kReduce ? costs.reduce : costs.all_reduce;
    const double duration = collective.time(elements, tensors).value();
    const double ready = time_of_work(items[range.end - 1].ready.value(), rate, busy);
    const double start = std::max(free, ready);
    free = start + duration;
    busy.emplace_back(start, free);
    cost.busy += duration;
  }
  const double computed = items.empty() ? 0 : time_of_work(items.back().ready.value(), rate, busy);
  cost.end = std::max(free, computed);
  return cost;
}

// Every way to cut `items` into consecutive messages that do not cross a change of route.
inline std::vector<Partition> all_partitions(std::span<const plan::FusionItem> items) {
  const std::size_t cuts = items.empty() ? 0 : items.size() - 1;
  std::vector<Partition> partitions;
  for (std::uint32_t mask = 0; mask < (1U << cuts); ++mask) {
    Partition partition;
    bool crosses = false;
    std::size_t begin = 0;
    for (std::size_t i = 1; i <= items.size(); ++i) {
      if (i == items.size() || ((mask >> (i - 1)) & 1U) != 0) {
        partition.push_back({begin, i});
        begin = i;
      } else if (!(items[i].route == items[i - 1].route)) {
        crosses = true;
      }
    }
    if (!crosses) partitions.push_back(std::move(partition));
  }
  return partitions;
}

// The earliest end of all partitions, and of those that reach it within `tolerance` the least time
// on the channel.
inline PartitionCost best_partition(std::span<const plan::FusionItem> items, const CostModel& costs,
                                    double channel_free = 0, double tolerance = 1e-9) {
  std::vector<PartitionCost> all;
  PartitionCost best{std::numeric_limits<double>::infinity(),
                     std::numeric_limits<double>::infinity()};
  for (const Partition& partition : all_partitions(items)) {
    all.push_back(evaluate(items, partition, costs, channel_free));
    best.end = std::min(best.end, all.back().end);
  }
  for (const PartitionCost& cost : all) {
    if (cost.end <= best.end + tolerance) best.busy = std::min(best.busy, cost.busy);
  }
  return best;
}

// The earliest end of all partitions of many items, by the plain dynamic program: for each prefix
// every way (channel free again, busy so far) that no other way beats in both, nothing left out.
inline double best_end_of_many(std::span<const plan::FusionItem> items, const CostModel& costs,
                               double channel_free = 0) {
  using Way = std::pair<double, double>;
  const double delay = 1 - costs.overheads.compute_rate_under_communication;
  std::vector<std::vector<Way>> ways(items.size() + 1);
  ways[0] = {{channel_free, 0.0}};
  for (std::size_t end = 1; end <= items.size(); ++end) {
    const plan::FusionItem& last = items[end - 1];
    const CollectiveCost& collective =
        last.route.op == CollectiveOp::kReduce ? costs.reduce : costs.all_reduce;
    std::vector<Way> found;
    std::int64_t elements = 0;
    std::int64_t tensors = 0;
    for (std::size_t begin = end; begin-- > 0 && items[begin].route == last.route;) {
      elements += items[begin].elements;
      tensors += items[begin].tensors;
      const double duration = collective.time(elements, tensors).value();
      for (const auto& [free, busy] : ways[begin]) {
        // If the item is ready before the channel is free, the message starts then; otherwise all
        // of `busy` lies before the ready time.
        const double start = std::max(free, last.ready.value() + delay * busy);
        found.emplace_back(start + duration, busy + duration);
      }
    }
    std::sort(found.begin(), found.end());
    for (const Way& way : found) {
      if (ways[end].empty() || way.second < ways[end].back().second) ways[end].push_back(way);
    }
  }
  return ways.back().front().first;
}

// The least possible load of the most loaded of `world` workers, over all assignments.
inline double smallest_maximal_load(const std::vector<double>& weights, int world) {
  std::vector<double> loads(static_cast<std::size_t>(world), 0);
  double best = std::numeric_limits<double>::infinity();
  auto place = [&](auto&& self, std::size_t item) -> void {
    if (item == weights.size()) {
      best = std::min(best, *std::max_element(loads.begin(), loads.end()));
      return;
    }
    for (double& load : loads) {
      const double before = load;
      load += weights[item];
      self(self, item + 1);
      load = before;
    }
  };
  place(place, 0);
  return best;
}

// The least possible weight of the heaviest block when `weights` are cut into at most `blocks`
// consecutive blocks: every set of cuts is tried.
inline double smallest_maximal_block(const std::vector<double>& weights, int blocks) {
  double best = std::numeric_limits<double>::infinity();
  const std::size_t cuts = weights.empty() ? 0 : weights.size() - 1;
  for (std::uint32_t mask = 0; mask < (1U << cuts); ++mask) {
    int used = 1;
    double block = 0;
    double heaviest = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (i > 0 && ((mask >> (i - 1)) & 1U) != 0) {
        ++used;
        block = 0;
      }
      block += weights[i];
      heaviest = std::max(heaviest, block);
    }
    if (used <= blocks) best = std::min(best, heaviest);
  }
  return best;
}

}  // namespace spdkfac::support
