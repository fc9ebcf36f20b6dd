// SPDX-License-Identifier: Apache-2.0
// Tables of several predictions.
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "spdkfac/report/number_text.h"
#include "spdkfac/report/prediction.h"
#include "spdkfac/report/table.h"

namespace spdkfac::report {
namespace {

using List = std::vector<const Prediction*>;

// A line of a table: an algorithm, or the same again as it was varied.
struct Line {
  std::string algorithm;
  int occurrence = 0;
};

const Prediction* find(const List& list, const Line& line) {
  int occurrence = 0;
  for (const Prediction* p : list) {
    if (p->algorithm == line.algorithm && occurrence++ == line.occurrence) return p;
  }
  return nullptr;
}

// Predictions at the same intervals, in order.
struct AtIntervals {
  RefreshIntervals intervals;
  List list;
};
std::vector<AtIntervals> by_intervals(std::span<const Prediction> predictions) {
  std::vector<AtIntervals> all;
  for (const Prediction& p : predictions) {
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const AtIntervals& at) { return at.intervals == p.intervals; });
    if (found == all.end()) found = all.insert(all.end(), {p.intervals, {}});
    found->list.push_back(&p);
  }
  return all;
}

std::vector<Line> lines_of(const std::vector<AtIntervals>& groups) {
  std::vector<Line> lines;
  for (const AtIntervals& at : groups) {
    std::map<std::string, int> seen;
    for (const Prediction* p : at.list) {
      const Line line{p->algorithm, seen[p->algorithm]++};
      const bool known = std::any_of(lines.begin(), lines.end(), [&](const Line& other) {
        return other.algorithm == line.algorithm && other.occurrence == line.occurrence;
      });
      if (!known) lines.push_back(line);
    }
  }
  return lines;
}

bool renews_in_every_step(const RefreshIntervals& intervals) { return intervals.inverses == 1; }

std::string group_title(const RefreshIntervals& intervals) {
  const std::string at = fmt::format("{}/{}", intervals.factors, intervals.inverses);
  if (renews_in_every_step(intervals)) return at + ": every step is full";
  if (intervals.growing_over == 0) return at + ": averages";
  return fmt::format("up to {}: averages of {} steps", at, intervals.growing_over);
}

struct Column {
  const char* title;
  bool wide;  // only of wide tables
  bool full;  // of a full step also where the others are averages
};
constexpr Column kColumns[] = {{"iteration ms", false, false},    {"× d-kfac", false, false},
                               {"× mpd-kfac", false, false},      {"sent MB", false, false},
                               {"exposed comm ms", false, false}, {"full step ms", true, true},
                               {"inverse max ms", false, true},   {"inverse min ms", true, true}};

std::string speedup(const Prediction* baseline, const Prediction& p) {
  const Seconds time = p.result.iteration;
  return baseline != nullptr && time > Seconds(0)
             ? fmt::format("{:.2f}", baseline->result.iteration / time)
             : "-";
}

// In the order of kColumns.
std::vector<std::string> cells_of(const Prediction& p, const AtIntervals& at) {
  const auto [smallest, largest] = inverse_range(p);
  return {milliseconds(p.result.iteration),
          speedup(find(at.list, {"d-kfac"}), p),
          speedup(find(at.list, {"mpd-kfac"}), p),
          megabytes(p.result.sent_bytes),
          milliseconds(exposed_communication(p.result.breakdown)),
          milliseconds(p.full_step),
          milliseconds(largest),
          milliseconds(smallest)};
}

// Which columns a table has of predictions at some intervals. Side by side there is less room.
bool is_shown(const Column& column, const AtIntervals& at, bool several, bool wide) {
  const std::string_view title = column.title;
  const bool same = several && renews_in_every_step(at.intervals) && title == "full step ms";
  if (wide) return !same;
  if (several) {
    if (title == "× mpd-kfac") return false;
    if (!renews_in_every_step(at.intervals)) return !column.full && title != "exposed comm ms";
    return !column.wide;
  }
  return !column.wide || (title == "full step ms" && !renews_in_every_step(at.intervals));
}

// Under the title of a group.
std::string title_of(const Column& column, const std::string& group) {
  const std::string_view title = column.title;
  if (group.empty()) return column.title;
  if (title == "iteration ms" || title == "full step ms") return "ms";
  if (title == "exposed comm ms") return "exposed ms";
  if (title == "inverse max ms") return "inverse ms";
  return column.title;
}

std::string group_of(const Column& column, const AtIntervals& at, bool several) {
  if (renews_in_every_step(at.intervals)) return several ? group_title(at.intervals) : "";
  if (!column.full) return group_title(at.intervals);
  return at.intervals.spread ? "slowest step" : "full step";
}

std::string table_of(const std::vector<Line>& lines, const std::vector<AtIntervals>& groups,
                     bool wide) {
  const bool several = groups.size() > 1;
  std::vector<Table::Column> columns = {{"algorithm", Table::Align::kLeft}};
  for (const AtIntervals& at : groups) {
    for (const Column& column : kColumns) {
      if (!is_shown(column, at, several, wide)) continue;
      const std::string group = group_of(column, at, several);
      columns.push_back({.title = title_of(column, group), .group = group});
    }
  }
  Table table(std::move(columns));
  for (const Line& line : lines) {
    std::vector<std::string> row = {line.algorithm};
    for (const AtIntervals& at : groups) {
      const Prediction* p = find(at.list, line);
      const auto cells =
          p == nullptr ? std::vector<std::string>(std::size(kColumns), "-") : cells_of(*p, at);
      for (std::size_t i = 0; i < cells.size(); ++i) {
        if (is_shown(kColumns[i], at, several, wide)) row.push_back(cells[i]);
      }
    }
    table.add_row(std::move(row));
  }
  return table.text();
}

std::string legend(const std::vector<AtIntervals>& groups) {
  std::string text = "× is the speed-up over that algorithm.";
  if (groups.size() > 1) {
    text +=
        " Titles say how many steps lie between new factors and between\nnew inverses. Averages "
        "are "
        "of a refresh cycle; inverse ms is the rank that inverts longest.";
  } else if (!renews_in_every_step(groups.front().intervals)) {
    text += " Averages are of a refresh cycle.";
  }
  return text + "\n";
}

}  // namespace

std::string comparison_text(std::span<const Prediction> predictions, bool wide) {
  if (predictions.empty()) return "";
  const std::vector<AtIntervals> groups = by_intervals(predictions);
  std::vector<Line> own;
  std::vector<Line> others;
  for (const Line& line : lines_of(groups)) {
    const bool other =
        std::any_of(other_methods().begin(), other_methods().end(),
                    [&](const AlgorithmInfo& info) { return info.name == line.algorithm; });
    (other ? others : own).push_back(line);
  }
  std::string text = heading(predictions.front());
  if (!own.empty()) text += table_of(own, groups, wide);
  if (!others.empty()) {
    if (!own.empty())
      text += "\nOther methods, which spdkfac plans and simulates but does not train\n";
    text += table_of(others, groups, wide);
  }
  return text + legend(groups);
}

std::string comparison_csv(std::span<const Prediction> predictions) {
  std::vector<Table::Column> columns;
  for (const char* title :
       {"model", "batch", "cluster", "world", "algorithm", "iteration_seconds"}) {
    columns.push_back({title});
  }
  for (const Category category : kCategories) {
    columns.push_back({fmt::format("{}_seconds", category_name(category))});
  }
  for (const char* title :
       {"bytes_per_worker", "exposed_communication_seconds", "full_step_seconds",
        "full_step_inverse_max_seconds", "full_step_inverse_min_seconds", "factor_interval",
        "inverse_interval"}) {
    columns.push_back({title});
  }
  Table table(std::move(columns));
  for (const Prediction& p : predictions) {
    std::vector<std::string> row = {p.model, std::to_string(p.batch), p.cluster,
                                    std::to_string(p.world), p.algorithm};
    const auto add = [&row](Seconds time) { row.push_back(fmt::format("{:.9f}", time.value())); };
    add(p.result.iteration);
    for (const Category category : kCategories) add(p.result.breakdown[category]);
    row.push_back(fmt::format("{:.0f}", p.result.sent_bytes));
    add(exposed_communication(p.result.breakdown));
    add(p.full_step);
    const auto [smallest, largest] = inverse_range(p);
    add(largest);
    add(smallest);
    row.push_back(std::to_string(p.intervals.factors));
    row.push_back(std::to_string(p.intervals.inverses));
    table.add_row(std::move(row));
  }
  return table.csv();
}

std::string scaling_text(std::span<const Prediction> predictions) {
  if (predictions.empty()) return "";
  std::vector<std::string> algorithms;
  std::vector<int> worlds;
  for (const Prediction& p : predictions) {
    if (std::find(algorithms.begin(), algorithms.end(), p.algorithm) == algorithms.end()) {
      algorithms.push_back(p.algorithm);
    }
    if (std::find(worlds.begin(), worlds.end(), p.world) == worlds.end()) worlds.push_back(p.world);
  }
  std::vector<Table::Column> columns = {{"ranks"}};
  for (const std::string& algorithm : algorithms) columns.push_back({algorithm + " ms"});
  columns.push_back({"best images/s"});
  Table table(std::move(columns));
  for (const int world : worlds) {
    std::vector<std::string> row = {std::to_string(world)};
    double best = 0;
    for (const std::string& algorithm : algorithms) {
      for (const Prediction& p : predictions) {
        if (p.world != world || p.algorithm != algorithm) continue;
        row.push_back(milliseconds(p.result.iteration));
        if (p.algorithm == "sgd") continue;  // not the same work
        best = std::max(best, static_cast<double>(p.batch) * world / p.result.iteration.value());
      }
    }
    row.push_back(best > 0 ? fmt::format("{:.0f}", best) : "-");
    table.add_row(std::move(row));
  }
  const Prediction& first = predictions.front();
  return fmt::format("{}, batch {} per rank, on {}\n", first.model, first.batch, first.cluster) +
         table.text();
}

}  // namespace spdkfac::report
