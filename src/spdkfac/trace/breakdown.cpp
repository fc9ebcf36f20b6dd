// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/trace/breakdown.h"

#include <algorithm>
#include <iterator>

namespace spdkfac {
namespace {

// Events of one lane in order of time.
using LaneEvents = std::vector<TraceEvent>;

// By rank.
std::vector<LaneEvents> lanes_of(const Trace& trace, Lane lane) {
  std::vector<LaneEvents> ranks(static_cast<std::size_t>(trace.world()));
  for (const TraceEvent& event : trace.events()) {
    if (event.lane == lane) ranks[static_cast<std::size_t>(event.rank)].push_back(event);
  }
  for (LaneEvents& events : ranks) {
    std::stable_sort(events.begin(), events.end(),
                     [](const TraceEvent& a, const TraceEvent& b) { return a.start < b.start; });
  }
  return ranks;
}

struct Span {
  Seconds start;
  Seconds end;
};

struct Piece {
  Span span;
  Category category;
};

// Adds each event's overlap with `spans` to the pieces and returns what no event covers.
std::vector<Span> charge(const LaneEvents& events, const std::vector<Span>& spans,
                         std::vector<Piece>& pieces) {
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
      pieces.push_back({{start, end}, events[i].category});
      now = end;
    }
    if (now < span.end) rest.push_back({now, span.end});
  }
  return rest;
}

CategoryTimes sum(const std::vector<Piece>& pieces) {
  CategoryTimes times;
  for (const Piece& piece : pieces) times[piece.category] += piece.span.end - piece.span.start;
  return times;
}

void add(const CategoryTimes& times, CategoryTimes& total) {
  for (const Category category : kCategories) total[category] += times[category];
}

// The first event that starts at `time` or later.
LaneEvents::const_iterator first_from(const LaneEvents& events, Seconds time) {
  return std::partition_point(events.begin(), events.end(),
                              [&](const TraceEvent& event) { return event.start < time; });
}

class Timelines {
 public:
  explicit Timelines(const Trace& trace)
      : iteration_(trace.iteration()),
        // Starts and ends are sums of the same numbers in different orders.
        slack_(trace.iteration() * 1e-9),
        compute_(lanes_of(trace, Lane::kCompute)),
        channel_(lanes_of(trace, Lane::kChannel)) {}

  CategoryTimes breakdown(std::size_t rank) const {
    std::vector<Piece> pieces;
    const std::vector<Span> waits = account(rank, {Seconds(0), iteration_}, pieces);
    CategoryTimes total = sum(pieces);
    Seconds met(0);        // when the rank last began a message
    CategoryTimes waited;  // since then
    for (const Span& wait : waits) {
      const TraceEvent* message = message_before(rank, wait);
      if (message != nullptr && message->start != met) {
        met = message->start;
        waited = CategoryTimes();
      }
      CategoryTimes part;
      if (message != nullptr && starts_at(compute_[rank], wait.end) &&
          !starts_at(channel_[rank], wait.end)) {
        part[message->category] = wait.end - wait.start;  // it has come, and the rank wakes up
      } else {
        part = wait_for_rank(rank, wait, met, waited);
      }
      add(part, waited);
      add(part, total);
    }
    return total;
  }

 private:
  // What a rank does within `span`; returns when it does nothing.
  std::vector<Span> account(std::size_t rank, const Span& span, std::vector<Piece>& pieces) const {
    return charge(channel_[rank], charge(compute_[rank], {span}, pieces), pieces);
  }

  const TraceEvent* message_before(std::size_t rank, const Span& wait) const {
    const auto next = first_from(channel_[rank], wait.start);
    return next == channel_[rank].begin() ? nullptr : &*std::prev(next);
  }

  const TraceEvent* starts_at(const LaneEvents& events, Seconds time) const {
    const auto event = first_from(events, time - slack_);
    return event != events.end() && event->start <= time + slack_ ? &*event : nullptr;
  }

  // The computation that ends last of those that have ended at `time`.
  const TraceEvent* last_computation(Seconds time) const {
    const TraceEvent* found = nullptr;
    for (const LaneEvents& events : compute_) {
      auto event = first_from(events, time + slack_);
      while (event != events.begin() && std::prev(event)->end() > time + slack_) --event;
      if (event == events.begin()) continue;
      --event;
      if (found == nullptr || event->end() > found->end()) found = &*event;
    }
    return found;
  }

  // A wait is what the late rank has spent more time on than this one since both last met.
  CategoryTimes wait_for_rank(std::size_t rank, const Span& wait, Seconds met,
                              const CategoryTimes& waited) const {
    const TraceEvent* last = last_computation(wait.end);
    const TraceEvent* message = starts_at(channel_[rank], wait.end);
    const Category otherwise = last == nullptr ? Category::kForwardBackward : last->category;
    const Category at_end = message != nullptr ? message->category : otherwise;
    CategoryTimes more;
    if (last != nullptr && static_cast<std::size_t>(last->rank) != rank) {
      std::vector<Piece> late;
      for (const Span& idle :
           account(static_cast<std::size_t>(last->rank), {met, wait.end}, late)) {
        late.push_back({idle, idle.end >= wait.end ? at_end : otherwise});
      }
      std::vector<Piece> own;
      account(rank, {met, wait.start}, own);
      const CategoryTimes theirs = sum(late);
      const CategoryTimes ours = sum(own);
      for (const Category category : kCategories) {
        const Seconds excess = theirs[category] - ours[category] - waited[category];
        more[category] = std::max(Seconds(0), excess);
      }
    }
    const Seconds length = wait.end - wait.start;
    if (more.total() <= slack_) {  // nobody is late: all wait for the message
      CategoryTimes times;
      times[at_end] = length;
      return times;
    }
    const double share = length / more.total();
    for (const Category category : kCategories) more[category] = more[category] * share;
    return more;
  }

  Seconds iteration_;
  Seconds slack_;
  std::vector<LaneEvents> compute_;  // by rank
  std::vector<LaneEvents> channel_;
};

}  // namespace

CategoryTimes breakdown(const Trace& trace, int rank) {
  return Timelines(trace).breakdown(static_cast<std::size_t>(rank));
}

CategoryTimes mean_breakdown(const Trace& trace) {
  const Timelines timelines(trace);
  CategoryTimes mean;
  for (int rank = 0; rank < trace.world(); ++rank) {
    const CategoryTimes times = timelines.breakdown(static_cast<std::size_t>(rank));
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

Seconds factor_messages(const Trace& trace) {
  Seconds sum;
  for (const TraceEvent& event : trace.events()) {
    const bool counts =
        event.rank == 0 && event.lane == Lane::kChannel && event.category == Category::kFactorComm;
    if (counts) sum += event.duration;
  }
  return sum;
}

std::vector<RankUtilisation> utilisation(const Trace& trace) {
  const std::vector<LaneEvents> compute = lanes_of(trace, Lane::kCompute);
  const std::vector<LaneEvents> channel = lanes_of(trace, Lane::kChannel);
  std::vector<RankUtilisation> result(compute.size());
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    for (const TraceEvent& event : compute[rank]) result[rank].compute += event.duration;
    std::vector<Span> busy;
    for (const TraceEvent& event : channel[rank]) {
      result[rank].channel += event.duration;
      busy.push_back({event.start, event.end()});
    }
    std::vector<Piece> hidden;
    charge(compute[rank], busy, hidden);
    for (const Piece& piece : hidden) result[rank].hidden += piece.span.end - piece.span.start;
  }
  return result;
}

}  // namespace spdkfac
