// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/run.h"

#include <algorithm>
#include <utility>

#include "spdkfac/report/record.h"
#include "spdkfac/trace/statistics.h"
#include "spdkfac/trace/trace_json.h"

namespace spdkfac::report {
namespace {

// Events of more ranks would make records of many megabytes and a page that nobody reads.
constexpr int kShownRanks = 8;

Json result_json(const std::optional<IterationResult>& result) {
  if (!result) return nullptr;
  Json json = Json::object();
  if (result->samples.empty()) {
    json["iteration"] = result->iteration.value();
  } else {
    const trace::ConfidenceInterval interval = trace::median_interval(result->samples);
    json["samples"] = result->samples;
    json["median"] = result->iteration.value();
    json["low"] = interval.low;
    json["high"] = interval.high;
  }
  json["breakdown"] = report::to_json(result->breakdown);
  json["sent_bytes"] = result->sent_bytes;
  json["factor_messages"] = result->factor_messages.value();
  if (!result->inverse_load.empty()) {
    json["inverse_loads"] = Json::array();
    for (const Seconds load : result->inverse_load) json["inverse_loads"].push_back(load.value());
  }
  return json;
}

Json events_json(const std::optional<IterationResult>& result) {
  if (!result) return Json::array();
  const Trace& trace = result->trace;
  Trace shown(std::min(trace.world(), kShownRanks));
  for (TraceEvent event : trace.events()) {
    if (event.rank >= shown.world()) continue;
    event.name = shown.intern(trace.names()[event.name]);
    shown.add(event);
  }
  return to_json(shown);
}

// Labels of the runs that were measured in turn with `run` and are neither faster nor slower.
Json alike_json(std::span<const Run> runs, const Run& run) {
  Json labels = Json::array();
  for (const Run& other : runs) {
    const bool in_turn = &other != &run && other.measured && other.model == run.model &&
                         other.world == run.world &&
                         other.measured->samples.size() == run.measured->samples.size();
    if (in_turn &&
        trace::paired_difference(other.measured->samples, run.measured->samples).none()) {
      labels.push_back(other.label);
    }
  }
  return labels;
}

Json run_json(const Run& run) {
  Json json = identity_json(run);
  json["paper"] = run.paper ? Json(run.paper->value()) : Json();
  json["forecast"] = result_json(run.forecast);
  json["replay"] = result_json(run.replay);
  json["measured"] = result_json(run.measured);
  if (run.owners.empty()) return json;
  json["owners"] = Json::array();
  for (const FactorPlacement& factor : run.owners) {
    Json owner = {{"layer", factor.layer},
                  {"side", factor.side == FactorSide::kA ? "a" : "g"},
                  {"dim", factor.dim},
                  {"owner", nullptr}};
    if (factor.owner) owner["owner"] = *factor.owner;
    json["owners"].push_back(std::move(owner));
  }
  return json;
}

}  // namespace

Json identity_json(const Run& run) {
  return {{"model", run.model},
          {"world", run.world},
          {"algorithm", run.algorithm},
          {"label", run.label}};
}

Json runs_json(std::span<const Run> runs) {
  Json list = Json::array();
  for (const Run& run : runs) {
    list.push_back(run_json(run));
    if (run.measured) list.back()["measured"]["alike"] = alike_json(runs, run);
  }
  return list;
}

Json traces_json(const Run& run) {
  Json json = identity_json(run);
  json["forecast"] = events_json(run.forecast);
  json["replay"] = events_json(run.replay);
  json["measured"] = events_json(run.measured);
  return json;
}

}  // namespace spdkfac::report
