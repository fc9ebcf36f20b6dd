// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/breakdown.h"

#include <algorithm>
#include <limits>

namespace spdkfac {
namespace {

// Events of one lane in order of time.
using LaneEvents = std::vector<TraceEvent>;

LaneEvents lane_of(const Trace& trace, int rank, Lane lane) {
  LaneEvents events;
  for (const TraceEvent& event : trace.events()) {
    if (event.rank == rank && event.lane == lane) events.push_back(event);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.start < b.start; });
  return events;
}

struct Span {
  Seconds start;
  Seconds end;
};

// Adds each event's overlap with `spans` to its category and returns what no event covers.
std::vector<Span> charge(const LaneEvents& events, const std::vector<Span>& spans,
                         CategoryTimes& times) {
  std::vector<Span> rest;
  std::size_t first = 0;
  for (const Span& span : spans) {
    Seconds now = span.start;
    while (first < events.size() && events[first].end() <= span.start) ++first;
    for (std::size_t i = first; i < events.size() && events[i].start < span.end; ++i) {
      const Seconds start = std::max(events[i].start, now);
      const Seconds end = std::min(events[i].end(), span.end);
      if (end <= start) continue;
      if (start > now) rest.push_back({now, start});
      times[events[i].category] += end - start;
      now = end;
    }
    if (now < span.end) rest.push_back({now, span.end});
  }
  return rest;
}

// The computation, on any rank, that ends last within [.., end]: what a wait until `end` was for.
const TraceEvent* blocker(const Trace& trace, Seconds end) {
  // Starts and ends are sums of the same numbers in different orders.
  const Seconds slack = trace.iteration() * 1e-9;
  const TraceEvent* found = nullptr;
  for (const TraceEvent& event : trace.events()) {
    if (event.lane != Lane::kCompute || event.end() > end + slack) continue;
    if (found == nullptr || event.end() > found->end()) found = &event;
  }
  return found;
}

}  // namespace

CategoryTimes breakdown(const Trace& trace, int rank) {
  CategoryTimes times;
  std::vector<Span> rest = {{Seconds(0), trace.iteration()}};
  rest = charge(lane_of(trace, rank, Lane::kCompute), rest, times);
  rest = charge(lane_of(trace, rank, Lane::kChannel), rest, times);
  for (const Span& wait : rest) {
    const TraceEvent* cause = blocker(trace, wait.end);
    const Category otherwise = cause == nullptr ? Category::kForwardBackward : cause->category;
    std::vector<Span> idle = {wait};
    if (cause != nullptr && cause->rank != rank) {
      idle = charge(lane_of(trace, cause->rank, Lane::kCompute), idle, times);
    }
    for (const Span& span : idle) times[otherwise] += span.end - span.start;
  }
  return times;
}

CategoryTimes mean_breakdown(const Trace& trace) {
  CategoryTimes mean;
  for (int rank = 0; rank < trace.world(); ++rank) {
    const CategoryTimes times = breakdown(trace, rank);
    for (const Category category : kCategories) {
      mean[category] += times[category] / static_cast<double>(trace.world());
    }
  }
  return mean;
}

int critical_rank(const Trace& trace) {
  std::vector<Seconds> compute(static_cast<std::size_t>(trace.world()));
  for (const TraceEvent& event : trace.events()) {
    if (event.lane == Lane::kCompute) {
      compute[static_cast<std::size_t>(event.rank)] += event.duration;
    }
  }
  return static_cast<int>(std::max_element(compute.begin(), compute.end()) - compute.begin());
}

Seconds exposed_communication(const CategoryTimes& breakdown) {
  return breakdown[Category::kGradientComm] + breakdown[Category::kFactorComm] +
         breakdown[Category::kInverseComm];
}

std::vector<RankUtilisation> utilisation(const Trace& trace) {
  const auto world = static_cast<std::size_t>(trace.world());
  std::vector<RankUtilisation> result(world);
  std::vector<LaneEvents> compute(world);
  std::vector<LaneEvents> channel(world);
  for (const TraceEvent& event : trace.events()) {
    const auto rank = static_cast<std::size_t>(event.rank);
    (event.lane == Lane::kCompute ? compute : channel)[rank].push_back(event);
    (event.lane == Lane::kCompute ? result[rank].compute : result[rank].channel) += event.duration;
  }
  const auto by_start = [](const TraceEvent& a, const TraceEvent& b) { return a.start < b.start; };
  for (std::size_t rank = 0; rank < world; ++rank) {
    std::stable_sort(compute[rank].begin(), compute[rank].end(), by_start);
    std::stable_sort(channel[rank].begin(), channel[rank].end(), by_start);
    std::vector<Span> busy;
    for (const TraceEvent& event : channel[rank]) busy.push_back({event.start, event.end()});
    CategoryTimes hidden;
    charge(compute[rank], busy, hidden);
    result[rank].hidden = hidden.total();
  }
  return result;
}

}  // namespace spdkfac
