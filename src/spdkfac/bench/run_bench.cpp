// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/run_bench.h"

#include <fmt/format.h>

#include "spdkfac/report/number_text.h"
#include "spdkfac/report/table.h"

namespace spdkfac::bench {
std::string to_text(const RunBenchResult& result) {
  std::string text = report::runs_text(result.table, result.runs);
  if (!result.head.cluster.empty()) {
    text += fmt::format("forecast with the costs of {}\n", result.head.cluster);
  }
  if (!result.head.note.empty()) text += result.head.note + "\n";
  return text;
}

Json to_json(const RunBenchResult& result, bool traces) {
  Json record = to_json(result.head);
  record["runs"] = report::runs_json(result.runs);
  if (!traces) return record;
  record["traces"] = Json::array();
  for (const report::Run& run : result.runs) record["traces"].push_back(report::traces_json(run));
  return record;
}

Json memory_record(const RunBenchResult& result) {
  report::RecordHead head = result.head;
  head.experiment = "memory";
  Json record = to_json(head);
  record["memory"] = Json::array();
  for (std::size_t i = 0; i < result.memory.size(); ++i) {
    Json entry = report::identity_json(result.runs[i]);
    entry["ranks"] = Json::array();
    for (const train::RankFigures& rank : result.memory[i]) {
      entry["ranks"].push_back({{"factors", rank.memory.factors.value()},
                                {"inverses", rank.memory.inverses.value()},
                                {"buffers", rank.memory.buffers.value()}});
    }
    record["memory"].push_back(std::move(entry));
  }
  return record;
}

std::string memory_text(const RunBenchResult& result) {
  using Align = report::Table::Align;
  report::Table table({{"model", Align::kLeft},
                       {"ranks"},
                       {"algorithm", Align::kLeft},
                       {"rank"},
                       {"factors MB"},
                       {"inverses MB"},
                       {"buffers MB"},
                       {"together MB"}});
  const auto text_of = [](Bytes bytes) {
    return report::megabytes(static_cast<double>(bytes.value()));
  };
  for (std::size_t i = 0; i < result.memory.size(); ++i) {
    const report::Run& run = result.runs[i];
    for (std::size_t rank = 0; rank < result.memory[i].size(); ++rank) {
      const KfacMemory& memory = result.memory[i][rank].memory;
      table.add_row({run.model, std::to_string(run.world), run.label, std::to_string(rank),
                     text_of(memory.factors), text_of(memory.inverses), text_of(memory.buffers),
                     text_of(memory.factors + memory.inverses + memory.buffers)});
    }
  }
  return table.text() + (result.head.note.empty() ? "" : result.head.note + "\n");
}

}  // namespace spdkfac::bench
