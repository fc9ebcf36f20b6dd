// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/run_bench.h"

#include <algorithm>

#include <fmt/format.h>

#include "spdkfac/report/table.h"

namespace spdkfac::bench {
namespace {

// Events of more ranks would make records of many megabytes and a page that nobody reads.
constexpr int kShownRanks = 8;

Json events_of(const std::optional<Trace>& trace) {
  if (!trace) return Json::array();
  Trace shown(std::min(trace->world(), kShownRanks));
  for (TraceEvent event : trace->events()) {
    if (event.rank >= shown.world()) continue;
    event.name = shown.intern(trace->names()[event.name]);
    shown.add(event);
  }
  return to_json(shown);
}

Json identity_of(const Run& run) {
  return {{"model", run.model},
          {"world", run.world},
          {"algorithm", run.algorithm},
          {"label", run.label}};
}

}  // namespace

std::string to_text(const RunBenchResult& result) {
  std::string text = runs_text(result.head.experiment, result.runs);
  if (!result.head.cluster.empty()) {
    text += fmt::format("predictions: {}\n", result.head.cluster);
  }
  if (!result.head.note.empty()) text += result.head.note + "\n";
  return text;
}

Json to_json(const RunBenchResult& result, bool traces) {
  Json record = to_json(result.head);
  record["runs"] = Json::array();
  for (const Run& run : result.runs) record["runs"].push_back(to_json(run));
  if (!traces) return record;
  record["traces"] = Json::array();
  for (std::size_t i = 0; i < result.traces.size(); ++i) {
    Json entry = identity_of(result.runs[i]);
    entry["predicted"] = events_of(result.traces[i].predicted);
    entry["measured"] = events_of(result.traces[i].measured);
    record["traces"].push_back(std::move(entry));
  }
  return record;
}

Json memory_record(const RunBenchResult& result) {
  RecordHead head = result.head;
  head.experiment = "memory";
  Json record = to_json(head);
  record["memory"] = Json::array();
  for (std::size_t i = 0; i < result.memory.size(); ++i) {
    Json entry = identity_of(result.runs[i]);
    entry["ranks"] = Json::array();
    for (const KfacMemory& memory : result.memory[i]) {
      entry["ranks"].push_back({{"factors", memory.factors.value()},
                                {"inverses", memory.inverses.value()},
                                {"buffers", memory.buffers.value()}});
    }
    record["memory"].push_back(std::move(entry));
  }
  return record;
}

std::string memory_text(const RunBenchResult& result) {
  using Align = Table::Align;
  Table table({{"model", Align::kLeft},
               {"workers"},
               {"algorithm", Align::kLeft},
               {"rank"},
               {"factors MB"},
               {"inverses MB"},
               {"buffers MB"},
               {"together MB"}});
  const auto megabytes = [](Bytes bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes.value()) / 1e6);
  };
  for (std::size_t i = 0; i < result.memory.size(); ++i) {
    const Run& run = result.runs[i];
    for (std::size_t rank = 0; rank < result.memory[i].size(); ++rank) {
      const KfacMemory& memory = result.memory[i][rank];
      table.add_row({run.model, std::to_string(run.world), run.label, std::to_string(rank),
                     megabytes(memory.factors), megabytes(memory.inverses),
                     megabytes(memory.buffers),
                     megabytes(memory.factors + memory.inverses + memory.buffers)});
    }
  }
  return table.text() + (result.head.note.empty() ? "" : result.head.note + "\n");
}

}  // namespace spdkfac::bench
