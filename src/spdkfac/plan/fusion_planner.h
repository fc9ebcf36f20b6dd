// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spdkfac/base/units.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/plan.h"

namespace spdkfac::plan {

// One tensor (or tensors that become ready together) waiting for the channel.
struct FusionItem {
  Seconds ready;
  std::int64_t elements = 0;
  std::int64_t tensors = 1;
  Route route;
};

// Items [begin, end) share one message.
struct MessageRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const MessageRange&) const = default;
};

struct FusionRule {
  Fusion fusion = Fusion::kGreedy;
  Bytes threshold_bytes = kMebibyte * 64;  // of kBucket and kThreshold
};

Seconds message_time(const CostModel& costs, const Route& route, std::int64_t elements,
                     std::int64_t tensors);

// The channel carries one message at a time; it starts when the channel is free and its last
// member is ready.
struct Transfer {
  MessageRange range;
  Seconds start;
  Seconds finish;
};
Transfer transfer(std::span<const FusionItem> items, MessageRange range, Seconds channel_free,
                  const CostModel& costs);

// The next message of `items` from `first` on, decided online by any rule but kOptimal:
// - none: one item;
// - bucket: items join while their bytes stay within the threshold;
// - threshold: everything ready when the channel takes it, up to the bytes, at least one item;
// - greedy (the paper): the next item joins iff its ready time < start of the open message + α.
// A message never crosses a change of route.
Transfer next_message(std::span<const FusionItem> items, std::size_t first, const FusionRule& rule,
                      Seconds channel_free, const CostModel& costs);

// Messages of one queue, by any rule. kOptimal is the exact dynamic program over contiguous
// messages: F(i) = min over j<i of max(F(j), r_i) + t(S_i − S_j). Where computation slows under
// communication, r_i moves by the time that the channel was busy before, so ways that finish later
// but keep the channel free are carried along; more than 320 items are then planned in pairs of
// neighbours (or more). Messages are taken at full speed, whatever is computed meanwhile. Of
// equal ends the one with less time on the channel.
// Ready times, those at full speed, must not decrease.
std::vector<MessageRange> fuse(std::span<const FusionItem> items, const FusionRule& rule,
                               const CostModel& costs, Seconds channel_free = Seconds(0));

// When the last of these messages has arrived, with computation slowed while the channel is busy.
Seconds finish_time(std::span<const FusionItem> items, std::span<const MessageRange> messages,
                    const CostModel& costs, Seconds channel_free = Seconds(0));

// Several queues share the channel; whenever it is free, the queue whose next message starts
// first takes it (ties: the lower queue). Returns (queue, range) in launch order.
struct QueuedRange {
  std::size_t queue = 0;
  MessageRange range;
  bool operator==(const QueuedRange&) const = default;
};
struct FusionQueue {
  std::vector<FusionItem> items;
  FusionRule rule;
};
std::vector<QueuedRange> merge_queues(std::span<const FusionQueue> queues, const CostModel& costs,
                                      Seconds& channel_free);

}  // namespace spdkfac::plan
