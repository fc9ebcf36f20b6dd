// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/bench/rank_traces.h"

#include <algorithm>

namespace spdkfac::cli {

Trace trace_of_ranks(const Ranks& ranks, Preconditioner& kfac) {
  const Trace mine = kfac.trace();
  if (ranks.alone()) return mine;
  const auto begin = kfac.trace_begin().time_since_epoch();
  const double seconds =
      std::chrono::duration<double>(begin).count() - ranks.clock_offset().value();
  const std::vector<std::string> texts =
      ranks.texts(Json({{"begin", seconds}, {"events", to_json(mine)}}).dump());
  if (!ranks.first()) return mine;

  std::vector<Json> documents;
  std::vector<double> begins;
  for (const std::string& text : texts) {
    documents.push_back(parse_json(text, "trace of a rank"));
    begins.push_back(documents.back().at("begin").get<double>());
  }
  const double first = *std::min_element(begins.begin(), begins.end());
  Trace all(ranks.size());
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const JsonValue events(documents[index].at("events"), "trace of a rank", "events");
    all.append(parse_trace(events, 1), rank, Seconds(begins[index] - first));
  }
  return all;
}

}  // namespace spdkfac::cli
