// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/rank_report.h"

#include <fmt/format.h>

#include "spdkfac/report/table.h"

namespace spdkfac::train {

std::vector<RankFigures> gather(const Ranks& ranks, const RankFigures& mine) {
  constexpr std::size_t kColumns = 4;
  std::vector<double> cells(kColumns * static_cast<std::size_t>(ranks.size()), 0);
  double* row = &cells[kColumns * static_cast<std::size_t>(ranks.rank())];
  row[0] = static_cast<double>(mine.memory.factors.value());
  row[1] = static_cast<double>(mine.memory.inverses.value());
  row[2] = static_cast<double>(mine.memory.buffers.value());
  row[3] = mine.sent_per_step;
  cells = ranks.sum(cells);
  std::vector<RankFigures> figures;
  for (std::size_t at = 0; at < cells.size(); at += kColumns) {
    const auto bytes = [&](std::size_t column) {
      return Bytes(static_cast<std::int64_t>(cells[at + column]));
    };
    figures.push_back({.memory = {.factors = bytes(0), .inverses = bytes(1), .buffers = bytes(2)},
                       .sent_per_step = cells[at + 3]});
  }
  return figures;
}

std::string ranks_text(const std::vector<RankFigures>& figures) {
  report::Table table(
      {{"rank"}, {"factors MB"}, {"inverses MB"}, {"buffers MB"}, {"sent MB per step"}});
  const auto megabytes = [](double bytes) { return fmt::format("{:.2f}", bytes / 1e6); };
  for (std::size_t rank = 0; rank < figures.size(); ++rank) {
    const RankFigures& one = figures[rank];
    table.add_row({std::to_string(rank), megabytes(static_cast<double>(one.memory.factors.value())),
                   megabytes(static_cast<double>(one.memory.inverses.value())),
                   megabytes(static_cast<double>(one.memory.buffers.value())),
                   megabytes(one.sent_per_step)});
  }
  std::string text = table.text();
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Json ranks_json(const std::vector<RankFigures>& figures) {
  Json list = Json::array();
  for (const RankFigures& one : figures) {
    list.push_back({{"factor_bytes", one.memory.factors.value()},
                    {"inverse_bytes", one.memory.inverses.value()},
                    {"buffer_bytes", one.memory.buffers.value()},
                    {"sent_bytes_per_step", one.sent_per_step}});
  }
  return list;
}

}  // namespace spdkfac::train
