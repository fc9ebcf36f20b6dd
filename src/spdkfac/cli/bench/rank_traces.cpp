// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/bench/rank_traces.h"

#include <algorithm>

#include "spdkfac/base/check.h"

namespace spdkfac::cli {
namespace {

std::vector<std::size_t> messages_of(const Trace& trace) {
  std::vector<std::size_t> messages;
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    if (trace.events()[i].lane == Lane::kChannel) messages.push_back(i);
  }
  return messages;
}

}  // namespace

Trace joined(const std::vector<Trace>& ranks, const std::vector<Seconds>& shifts) {
  SPDKFAC_CHECK(!ranks.empty() && ranks.size() == shifts.size(), "traces without their shifts");
  std::vector<std::vector<std::size_t>> messages;
  for (const Trace& trace : ranks) messages.push_back(messages_of(trace));
  // When the last rank has started each message; ranks start the same ones in the same order.
  std::vector<Seconds> started;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    SPDKFAC_CHECK(messages[rank].size() == messages[0].size(), "ranks with different messages");
    started.resize(messages[rank].size(), shifts[rank]);
    for (std::size_t i = 0; i < started.size(); ++i) {
      const TraceEvent& event = ranks[rank].events()[messages[rank][i]];
      started[i] = std::max(started[i], event.start + shifts[rank]);
    }
  }
  Trace all(static_cast<int>(ranks.size()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::size_t message = 0;
    for (TraceEvent event : ranks[rank].events()) {
      const Seconds end = event.end() + shifts[rank];
      event.start += shifts[rank];
      if (event.lane == Lane::kChannel) event.start = std::min(end, started[message++]);
      event.duration = end - event.start;
      event.rank = static_cast<std::int32_t>(rank);
      event.name = all.intern(ranks[rank].names()[event.name]);
      all.add(event);
    }
  }
  return all;
}

RankTraces::RankTraces(const Ranks& ranks) : ranks_(ranks), clock_offset_(ranks.clock_offset()) {}

Trace RankTraces::last_step(Preconditioner& kfac) const {
  const auto begin = kfac.trace_begin().time_since_epoch();
  const double seconds = std::chrono::duration<double>(begin).count() - clock_offset_.value();
  const std::string mine = Json({{"begin", seconds}, {"events", to_json(kfac.trace())}}).dump();
  std::vector<Trace> traces;
  std::vector<double> begins;
  for (const std::string& text : ranks_.texts(mine)) {
    const Json document = parse_json(text, "trace of a rank");
    traces.push_back(parse_trace(JsonValue(document.at("events"), "trace of a rank", "events"), 1));
    begins.push_back(document.at("begin").get<double>());
  }
  const double first = *std::min_element(begins.begin(), begins.end());
  std::vector<Seconds> shifts;
  for (const double one : begins) shifts.emplace_back(one - first);
  return joined(traces, shifts);
}

}  // namespace spdkfac::cli
