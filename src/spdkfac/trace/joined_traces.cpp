// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/trace/joined_traces.h"

#include <algorithm>

#include "spdkfac/base/check.h"

namespace spdkfac::trace {
namespace {

struct MessageSpan {
  Seconds start;
  Seconds end;
  double elements;

  Seconds duration() const { return end - start; }
};

// What the start-up of a message counts as.
constexpr double kStartupElements = 4096;
// A message that ends so much sooner than the one before did, and travels so much faster, has
// travelled beside it.
constexpr double kSuddenly = 2;

std::vector<MessageSpan> messages_of(const Trace& trace, Seconds shift) {
  std::vector<MessageSpan> messages;
  for (const TraceEvent& event : trace.events()) {
    if (event.lane != Lane::kChannel) continue;
    messages.push_back({event.start + shift, event.end() + shift,
                        static_cast<double>(event.elements) + kStartupElements});
  }
  return messages;
}

// Some are under way together and end nearly at once: the lane shows the first for the time of all
// and the others for none. Each gets its share of the time by its size.
void share_time(std::vector<MessageSpan>& messages) {
  struct Group {
    std::size_t first;
    MessageSpan span;
  };
  std::vector<Group> groups;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    groups.push_back({i, messages[i]});
    while (groups.size() > 1) {
      const MessageSpan& last = groups.back().span;
      MessageSpan& before = groups[groups.size() - 2].span;
      const bool behind = last.start <= before.end;
      const bool faster = last.elements * before.duration().value() >
                          kSuddenly * before.elements * last.duration().value();
      const bool sooner = before.duration() > last.duration() * kSuddenly;
      if (!behind || !faster || !sooner) break;
      before = {before.start, last.end, before.elements + last.elements};
      groups.pop_back();
    }
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::size_t end = g + 1 < groups.size() ? groups[g + 1].first : messages.size();
    const MessageSpan& all = groups[g].span;
    if (end - groups[g].first == 1) continue;
    Seconds now = all.start;
    for (std::size_t i = groups[g].first; i < end; ++i) {
      const Seconds next = now + all.duration() * (messages[i].elements / all.elements);
      messages[i] = {now, i + 1 == end ? all.end : next, messages[i].elements};
      now = messages[i].end;
    }
  }
}

// When each message was on its way for all ranks, which start the same ones in the same order.
std::vector<MessageSpan> shared_messages(const std::vector<Trace>& ranks,
                                         const std::vector<Seconds>& shifts) {
  std::vector<MessageSpan> shared = messages_of(ranks[0], shifts[0]);
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const std::vector<MessageSpan> own = messages_of(ranks[rank], shifts[rank]);
    SPDKFAC_CHECK(own.size() == shared.size(), "ranks with different messages");
    for (std::size_t i = 0; i < own.size(); ++i) {
      shared[i].start = std::max(shared[i].start, own[i].start);
      shared[i].end = std::max(shared[i].end, own[i].end);
    }
  }
  for (std::size_t i = 1; i < shared.size(); ++i) {
    shared[i].start = std::max(shared[i].start, shared[i - 1].end);
    shared[i].end = std::max(shared[i].end, shared[i].start);
  }
  share_time(shared);
  return shared;
}

}  // namespace

Trace joined_traces(const std::vector<Trace>& ranks, const std::vector<Seconds>& shifts) {
  SPDKFAC_CHECK(!ranks.empty() && ranks.size() == shifts.size(), "traces without their shifts");
  const std::vector<MessageSpan> messages = shared_messages(ranks, shifts);
  Trace all(static_cast<int>(ranks.size()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::size_t message = 0;
    for (TraceEvent event : ranks[rank].events()) {
      event.start += shifts[rank];
      if (event.lane == Lane::kChannel) {
        event.start = messages[message].start;
        event.duration = messages[message].end - messages[message].start;
        ++message;
      }
      event.rank = static_cast<std::int32_t>(rank);
      event.name = all.intern(ranks[rank].names()[event.name]);
      all.add(event);
    }
  }
  return all;
}

}  // namespace spdkfac::trace
