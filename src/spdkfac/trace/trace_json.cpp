// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/trace/trace_json.h"

#include <array>
#include <string_view>

#include "spdkfac/trace/lane_names.h"

namespace spdkfac {
namespace {

constexpr double kLongestTrace = 1e9;  // seconds
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

}  // namespace

Json to_json(const Trace& trace) {
  Json events = Json::array();
  for (const TraceEvent& event : trace.events()) {
    events.push_back({event.rank, trace::kLaneNames[static_cast<std::size_t>(event.lane)],
                      category_name(event.category), trace.names()[event.name], event.start.value(),
                      event.duration.value()});
    if (event.elements > 0) events.back().push_back(event.elements);
  }
  return events;
}

Trace parse_trace(const JsonValue& events, int world) {
  static const std::vector<std::string> lanes(trace::kLaneNames.begin(), trace::kLaneNames.end());
  static const std::vector<std::string> categories = [] {
    std::vector<std::string> names;
    for (const Category category : kCategories) names.emplace_back(category_name(category));
    return names;
  }();
  Trace trace(world);
  for (const JsonValue& value : events.array()) {
    const std::vector<JsonValue> fields = value.array();
    if (fields.size() != 6 && fields.size() != 7) {
      value.fail("an event has six or seven fields: rank, lane, category, …");
    }
    trace.add({.rank = static_cast<std::int32_t>(fields[0].integer(0, world - 1)),
               .name = trace.intern(fields[3].string()),
               .lane = static_cast<Lane>(fields[1].choice(lanes)),
               .category = static_cast<Category>(fields[2].choice(categories)),
               .start = Seconds(fields[4].number(-kLongestTrace, kLongestTrace)),
               .duration = Seconds(fields[5].number(0, kLongestTrace)),
               .elements = fields.size() > 6 ? fields[6].integer(0, kMostElements) : 0});
  }
  return trace;
}

}  // namespace spdkfac
