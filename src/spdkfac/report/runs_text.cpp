// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "spdkfac/report/number_text.h"
#include "spdkfac/report/prediction.h"
#include "spdkfac/report/run.h"
#include "spdkfac/report/table.h"
#include "spdkfac/trace/statistics.h"

namespace spdkfac::report {
namespace {

using Value = std::function<Seconds(const IterationResult&)>;

// What there is of measured, replay and forecast: 12.3/12.1/13.1.
std::string all_values(const Run& run, const Value& value) {
  std::string text;
  for (const auto* result : {&run.measured, &run.replay, &run.forecast}) {
    if (!*result) continue;
    text += (text.empty() ? "" : "/") + milliseconds(value(**result));
  }
  return text;
}

std::string interval_text(const Run& run) {
  if (!run.measured) return "";
  const trace::ConfidenceInterval interval = trace::median_interval(run.measured->samples);
  return fmt::format("{} to {}", milliseconds(Seconds(interval.low)),
                     milliseconds(Seconds(interval.high)));
}

// How far a simulated iteration is from the measured one, as a share of that.
std::optional<double> error(const Run& run, const std::optional<IterationResult>& simulated) {
  if (!run.measured || !simulated) return std::nullopt;
  return simulated->iteration / run.measured->iteration - 1;
}

std::string error_text(std::optional<double> error) {
  return error ? fmt::format("{:+.1f}", 100 * *error) : "";
}

const Run* find(std::span<const Run> runs, const Run& like, const std::string& algorithm) {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const Run& run) {
    return run.model == like.model && run.world == like.world && run.algorithm == algorithm;
  });
  return found == runs.end() ? nullptr : &*found;
}

// How many times as fast as `base`; = where the samples cannot tell.
std::string speedup(const Run* base, const Run& run) {
  if (base == nullptr || base == &run) return "";
  const bool in_turn = base->measured && run.measured &&
                       base->measured->samples.size() == run.measured->samples.size();
  const bool same =
      in_turn && trace::paired_difference(base->measured->samples, run.measured->samples).none();
  const double ratio = base->best().iteration / run.best().iteration;
  return fmt::format("{}{:.2f}", same ? "= " : "", ratio);
}

using Columns = std::vector<Table::Column>;

Columns first_columns() {
  return {{"model", Table::Align::kLeft}, {"ranks"}, {"algorithm", Table::Align::kLeft}};
}

std::vector<std::string> first_cells(const Run& run) {
  return {run.model, std::to_string(run.world), run.label};
}

void add_iteration_columns(Columns& columns) {
  for (const char* title : {"paper ms", "median ms", "95 % interval", "replay ms", "error %",
                            "forecast ms", "error %"}) {
    columns.push_back({title});
  }
}

void add_iteration_cells(const Run& run, std::vector<std::string>& cells) {
  cells.push_back(run.paper ? milliseconds(*run.paper) : "");
  cells.push_back(run.measured ? milliseconds(run.measured->iteration) : "");
  cells.push_back(interval_text(run));
  for (const auto* simulated : {&run.replay, &run.forecast}) {
    cells.push_back(*simulated ? milliseconds((*simulated)->iteration) : "");
    cells.push_back(error_text(error(run, *simulated)));
  }
}

std::string iteration_table(std::span<const Run> runs) {
  Columns columns = first_columns();
  add_iteration_columns(columns);
  for (const char* title : {"SP1", "SP2", "sent MB", "factor messages ms", "hidden %"}) {
    columns.push_back({title});
  }
  Table table(columns);
  for (const Run& run : runs) {
    std::vector<std::string> cells = first_cells(run);
    add_iteration_cells(run, cells);
    cells.push_back(speedup(find(runs, run, "d-kfac"), run));
    cells.push_back(speedup(find(runs, run, "mpd-kfac"), run));
    cells.push_back(megabytes(run.best().sent_bytes, 2));
    cells.push_back(
        all_values(run, [](const IterationResult& result) { return result.factor_messages; }));
    const std::optional<double> hidden = hidden_share(run.best());
    cells.push_back(hidden ? fmt::format("{:.0f}", 100 * *hidden) : "");
    table.add_row(cells);
  }
  table.drop_empty_columns();
  return table.text() +
         "SP1, SP2: speed-up over d-kfac and mpd-kfac; = marks differences that are not "
         "significant\n";
}

std::string parts_table(std::span<const Run> runs, std::span<const Category> parts) {
  Columns columns = first_columns();
  for (const Category category : parts) columns.push_back({std::string(category_title(category))});
  columns.push_back({"together"});
  Table table(columns);
  for (const Run& run : runs) {
    std::vector<std::string> cells = first_cells(run);
    for (const Category category : parts) {
      cells.push_back(all_values(
          run, [&](const IterationResult& result) { return result.breakdown[category]; }));
    }
    cells.push_back(all_values(run, [&](const IterationResult& result) {
      Seconds sum;
      for (const Category category : parts) sum += result.breakdown[category];
      return sum;
    }));
    table.add_row(cells);
  }
  return table.text();
}

std::string ablation_table(std::span<const Run> runs) {
  Columns columns = first_columns();
  add_iteration_columns(columns);
  columns.push_back({"speed-up"});
  Table table(columns);
  for (const Run& run : runs) {
    std::vector<std::string> cells = first_cells(run);
    add_iteration_cells(run, cells);
    cells.push_back(speedup(find(runs, run, runs.front().algorithm), run));
    table.add_row(cells);
  }
  table.drop_empty_columns();
  return table.text();
}

std::string scaling_table(std::span<const Run> runs) {
  Columns columns{{"model", Table::Align::kLeft}, {"ranks"}};
  std::vector<std::string> labels;
  for (const Run& run : runs) {
    if (std::find(labels.begin(), labels.end(), run.label) == labels.end()) {
      labels.push_back(run.label);
      columns.push_back({run.label});
    }
  }
  Table table(columns);
  for (std::size_t i = 0; i < runs.size();) {
    std::vector<std::string> cells = {runs[i].model, std::to_string(runs[i].world)};
    cells.resize(columns.size());
    const Run& row = runs[i];
    for (; i < runs.size() && runs[i].model == row.model && runs[i].world == row.world; ++i) {
      const auto label = std::find(labels.begin(), labels.end(), runs[i].label);
      cells[2 + static_cast<std::size_t>(label - labels.begin())] =
          all_values(runs[i], [](const IterationResult& result) { return result.iteration; });
    }
    table.add_row(cells);
  }
  return table.text();
}

// "replay 1.6 % (at most 4.2 %)"
std::string error_summary(std::span<const Run> runs, const char* name,
                          std::optional<IterationResult> Run::*simulated) {
  double sum = 0;
  double largest = 0;
  int count = 0;
  for (const Run& run : runs) {
    const std::optional<double> one = error(run, run.*simulated);
    if (!one) continue;
    sum += std::abs(*one);
    largest = std::max(largest, std::abs(*one));
    ++count;
  }
  if (count == 0) return "";
  return fmt::format("; {} {:.1f} % (at most {:.1f} %)", name, 100 * sum / count, 100 * largest);
}

std::string errors_text(std::span<const Run> runs) {
  const std::string errors =
      error_summary(runs, "replay", &Run::replay) + error_summary(runs, "forecast", &Run::forecast);
  if (errors.empty()) return "";
  return "ms are measured/replay/forecast; mean absolute error of an iteration" + errors.substr(1) +
         "\n";
}

std::string table_text(RunTable table, std::span<const Run> runs) {
  constexpr Category kPipelining[] = {Category::kFactorComp, Category::kFactorComm};
  constexpr Category kPlacement[] = {Category::kInverseComp, Category::kInverseComm};
  switch (table) {
    case RunTable::kBreakdown:
      return parts_table(runs, kCategories);
    case RunTable::kPipelining:
      return parts_table(runs, kPipelining);
    case RunTable::kPlacement:
      return parts_table(runs, kPlacement);
    case RunTable::kAblation:
      return ablation_table(runs);
    case RunTable::kScaling:
      return scaling_table(runs);
    case RunTable::kIteration:
      break;
  }
  return iteration_table(runs);
}

}  // namespace

std::string runs_text(RunTable table, std::span<const Run> runs) {
  if (runs.empty()) return "no runs\n";
  return table_text(table, runs) + errors_text(runs);
}

}  // namespace spdkfac::report
