// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/fusion_planner.h"

#include <algorithm>
#include <utility>

#include "spdkfac/base/check.h"

namespace spdkfac::plan {
namespace {

const CollectiveCost& cost_of(const CostModel& costs, const Route& route) {
  return route.op == CollectiveOp::kReduce ? costs.reduce : costs.all_reduce;
}

// The end of a bucket of at most `bytes` that starts at `first`; readiness plays no part.
std::size_t bucket_end(std::span<const FusionItem> items, std::size_t first, Bytes bytes) {
  std::int64_t elements = items[first].elements;
  std::size_t end = first + 1;
  while (end < items.size() && items[end].route == items[first].route &&
         (elements + items[end].elements) * kBytesPerElement <= bytes.value()) {
    elements += items[end++].elements;
  }
  return end;
}

std::size_t threshold_end(std::span<const FusionItem> items, std::size_t first, Bytes bytes,
                          Seconds channel_free) {
  const Seconds start = std::max(channel_free, items[first].ready);
  const std::size_t limit = bucket_end(items, first, bytes);
  std::size_t end = first + 1;
  while (end < limit && items[end].ready <= start) ++end;
  return end;
}

std::size_t greedy_end(std::span<const FusionItem> items, std::size_t first, Seconds channel_free,
                       const CostModel& costs) {
  const Route& route = items[first].route;
  const Seconds alpha = cost_of(costs, route).startup();
  Seconds start = std::max(channel_free, items[first].ready);
  std::size_t end = first + 1;
  while (end < items.size() && items[end].route == route && items[end].ready < start + alpha) {
    start = std::max(start, items[end].ready);
    ++end;
  }
  return end;
}

// A way to send the first items: when the channel is free again and how long it was busy.
struct Sent {
  Seconds finish;
  Seconds busy;
  std::size_t begin = 0;   // of its last message
  std::size_t parent = 0;  // which way it continues, among those that end at `begin`
};

// The undominated ways to send the same items, by rising finish and falling busy time.
class Frontier {
 public:
  const std::vector<Sent>& ways() const { return ways_; }

  void add(const Sent& way) {
    // Longer messages come later, so this is the usual case.
    if (ways_.empty() || way.finish > ways_.back().finish) {
      if (ways_.empty() || way.busy < ways_.back().busy) ways_.push_back(way);
      return;
    }
    auto after = std::upper_bound(ways_.begin(), ways_.end(), way,
                                  [](const Sent& a, const Sent& b) { return a.finish < b.finish; });
    if (after != ways_.begin() && std::prev(after)->busy <= way.busy) return;
    // What finishes no earlier and is busy no less goes; equal finishes stand before `after`.
    while (after != ways_.begin() && std::prev(after)->finish == way.finish) --after;
    auto end = after;
    while (end != ways_.end() && end->busy >= way.busy) ++end;
    if (end == after) {
      ways_.insert(after, way);
    } else {
      *after = way;
      ways_.erase(after + 1, end);
    }
  }

  // The first way worth continuing with a message whose last member is ready at `ready` (at full
  // speed): of those that all wait for it, the one that was busy least starts first.
  std::size_t first_useful(Seconds ready, double delay) const {
    std::size_t k = ways_.size() - 1;
    while (k > 0 && ways_[k].finish > ready + ways_[k].busy * delay) --k;
    return k;
  }

 private:
  std::vector<Sent> ways_;
};

struct Outcome {
  Seconds finish;  // the last message has arrived
  Seconds busy;    // how long the channel was busy
};

Outcome send_all(std::span<const FusionItem> items, std::span<const MessageRange> messages,
                 const CostModel& costs, Seconds channel_free) {
  const double delay = 1 - costs.overheads.compute_rate_under_communication;
  Outcome outcome{channel_free, Seconds(0)};
  for (const MessageRange& range : messages) {
    // Computation is late by `delay` times the busy time: seen from it, the channel is free
    // earlier.
    const Seconds late = outcome.busy * delay;
    const Transfer sent = transfer(items, range, outcome.finish - late, costs);
    outcome.finish = sent.finish + late;
    outcome.busy += sent.finish - sent.start;
  }
  return outcome;
}

std::vector<MessageRange> best_messages(std::span<const FusionItem> items, const CostModel& costs,
                                        Seconds channel_free) {
  if (items.empty()) return {};
  const double delay = 1 - costs.overheads.compute_rate_under_communication;
  std::vector<Frontier> frontiers(items.size() + 1);
  frontiers[0].add({channel_free, Seconds(0), 0, 0});
  for (std::size_t i = 1; i <= items.size(); ++i) {
    const FusionItem& last = items[i - 1];
    const CollectiveCost& cost = cost_of(costs, last.route);
    std::int64_t elements = 0;
    std::int64_t tensors = 0;
    // No later message starts before the next item is ready, so a channel free earlier gains
    // nothing.
    const Seconds next_ready = i < items.size() ? items[i].ready : Seconds(0);
    for (std::size_t j = i; j-- > 0 && items[j].route == last.route;) {
      elements += items[j].elements;
      tensors += items[j].tensors;
      const Seconds time = cost.time(elements, tensors);
      const std::vector<Sent>& before = frontiers[j].ways();
      for (std::size_t k = frontiers[j].first_useful(last.ready, delay); k < before.size(); ++k) {
        const Seconds ready = last.ready + before[k].busy * delay;
        Sent way{std::max(before[k].finish, ready) + time, before[k].busy + time, j, k};
        way.finish = std::max(way.finish, next_ready + way.busy * delay);
        frontiers[i].add(way);
      }
    }
  }
  const auto done = [&](const Sent& way) {
    // Done is when both the channel and the computation are.
    return std::pair(std::max(way.finish, items.back().ready + way.busy * delay), way.busy);
  };
  const std::vector<Sent>& all = frontiers.back().ways();
  const auto best = std::min_element(
      all.begin(), all.end(), [&](const Sent& a, const Sent& b) { return done(a) < done(b); });
  std::vector<MessageRange> messages;
  std::size_t way = static_cast<std::size_t>(best - all.begin());
  for (std::size_t end = items.size(); end > 0;) {
    const Sent& sent = frontiers[end].ways()[way];
    messages.push_back({sent.begin, end});
    end = sent.begin;
    way = sent.parent;
  }
  std::reverse(messages.begin(), messages.end());
  return messages;
}

// Ranges of neighbours of one route, `size` items each where the route allows.
std::vector<MessageRange> neighbours(std::span<const FusionItem> items, std::size_t size) {
  std::vector<MessageRange> ranges;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (ranges.empty() || ranges.back().end - ranges.back().begin == size ||
        items[i].route != items[i - 1].route) {
      ranges.push_back({i, i});
    }
    ranges.back().end = i + 1;
  }
  return ranges;
}

// The work grows with the square of the items, and with the ways kept where computation slows. Far
// more tensors than this leave at nearly the same times, so then neighbours are planned as one.
constexpr std::size_t kMaxItems = 320;

std::vector<MessageRange> fuse_optimal(std::span<const FusionItem> items, const CostModel& costs,
                                       Seconds channel_free) {
  const bool slows = costs.overheads.compute_rate_under_communication < 1;
  if (!slows || items.size() <= kMaxItems) return best_messages(items, costs, channel_free);
  const auto ranges = neighbours(items, (items.size() + kMaxItems - 1) / kMaxItems);
  std::vector<FusionItem> merged;
  for (const MessageRange& range : ranges) {
    FusionItem& item = merged.emplace_back(items[range.begin]);
    for (std::size_t i = range.begin + 1; i < range.end; ++i) {
      item.ready = items[i].ready;
      item.elements += items[i].elements;
      item.tensors += items[i].tensors;
    }
  }
  std::vector<MessageRange> messages = best_messages(merged, costs, channel_free);
  for (MessageRange& message : messages) {
    message = {ranges[message.begin].begin, ranges[message.end - 1].end};
  }
  return messages;
}

}  // namespace

Seconds message_time(const CostModel& costs, const Route& route, std::int64_t elements,
                     std::int64_t tensors) {
  return cost_of(costs, route).time(elements, tensors);
}

Transfer transfer(std::span<const FusionItem> items, MessageRange range, Seconds channel_free,
                  const CostModel& costs) {
  SPDKFAC_CHECK(range.begin < range.end && range.end <= items.size(), "empty message");
  std::int64_t elements = 0;
  std::int64_t tensors = 0;
  Seconds start = channel_free;
  for (const FusionItem& item : items.subspan(range.begin, range.end - range.begin)) {
    elements += item.elements;
    tensors += item.tensors;
    start = std::max(start, item.ready);
  }
  return {range, start, start + message_time(costs, items[range.begin].route, elements, tensors)};
}

Transfer next_message(std::span<const FusionItem> items, std::size_t first, const FusionRule& rule,
                      Seconds channel_free, const CostModel& costs) {
  std::size_t end = first + 1;
  switch (rule.fusion) {
    case Fusion::kNone:
      break;
    case Fusion::kBucket:
      end = bucket_end(items, first, rule.threshold_bytes);
      break;
    case Fusion::kThreshold:
      end = threshold_end(items, first, rule.threshold_bytes, channel_free);
      break;
    case Fusion::kGreedy:
      end = greedy_end(items, first, channel_free, costs);
      break;
    case Fusion::kOptimal:
      SPDKFAC_CHECK(false, "the dynamic program does not decide online");
  }
  return transfer(items, {first, end}, channel_free, costs);
}

std::vector<MessageRange> fuse(std::span<const FusionItem> items, const FusionRule& rule,
                               const CostModel& costs, Seconds channel_free) {
  if (rule.fusion == Fusion::kOptimal) return fuse_optimal(items, costs, channel_free);
  std::vector<MessageRange> messages;
  for (std::size_t first = 0; first < items.size();) {
    const Transfer next = next_message(items, first, rule, channel_free, costs);
    messages.push_back(next.range);
    channel_free = next.finish;
    first = next.range.end;
  }
  return messages;
}

Seconds finish_time(std::span<const FusionItem> items, std::span<const MessageRange> messages,
                    const CostModel& costs, Seconds channel_free) {
  return send_all(items, messages, costs, channel_free).finish;
}

std::vector<QueuedRange> merge_queues(std::span<const FusionQueue> queues, const CostModel& costs,
                                      Seconds& channel_free) {
  std::vector<std::size_t> next(queues.size(), 0);
  std::vector<QueuedRange> order;
  while (true) {
    std::size_t chosen = queues.size();
    Transfer first{};
    for (std::size_t q = 0; q < queues.size(); ++q) {
      if (next[q] == queues[q].items.size()) continue;
      const Transfer candidate =
          next_message(queues[q].items, next[q], queues[q].rule, channel_free, costs);
      if (chosen == queues.size() || candidate.start < first.start) {
        chosen = q;
        first = candidate;
      }
    }
    if (chosen == queues.size()) return order;
    order.push_back({chosen, first.range});
    channel_free = first.finish;
    next[chosen] = first.range.end;
  }
}

}  // namespace spdkfac::plan
