// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/rank_traces.h"

#include <algorithm>

#include "spdkfac/base/json.h"
#include "spdkfac/runtime/step_meter.h"
#include "spdkfac/trace/joined_traces.h"
#include "spdkfac/trace/trace_json.h"

namespace spdkfac::bench {

RankTraces::RankTraces(const train::Ranks& ranks)
    : ranks_(ranks), clock_offset_(ranks.clock_offset()) {}

Trace RankTraces::last_step(Preconditioner& kfac) const {
  const StepMeter meter(kfac);
  const auto begin = meter.trace_begin().time_since_epoch();
  const double seconds = std::chrono::duration<double>(begin).count() - clock_offset_.value();
  const std::string mine = Json({{"begin", seconds}, {"events", to_json(meter.trace())}}).dump();
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
  return trace::joined_traces(traces, shifts);
}

}  // namespace spdkfac::bench
