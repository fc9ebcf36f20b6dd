// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/run.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "spdkfac/report/prediction.h"
#include "spdkfac/report/record.h"
#include "spdkfac/report/table.h"
#include "spdkfac/trace/statistics.h"

namespace spdkfac {
namespace {

std::string ms(double seconds) { return fmt::format("{:.1f}", 1e3 * seconds); }
std::string ms(Seconds time) { return ms(time.value()); }

Json to_json(const RunTimes& times) {
  Json json = Json::object();
  if (times.samples.empty()) {
    json["iteration"] = times.iteration.value();
  } else {
    const ConfidenceInterval interval = median_interval(times.samples);
    json["samples"] = times.samples;
    json["median"] = times.iteration.value();
    json["low"] = interval.low;
    json["high"] = interval.high;
  }
  json["breakdown"] = spdkfac::to_json(times.breakdown);
  json["sent_bytes"] = times.sent_bytes;
  json["factor_messages"] = times.factor_messages.value();
  if (!times.inverse_loads.empty()) {
    json["inverse_loads"] = Json::array();
    for (const Seconds load : times.inverse_loads) json["inverse_loads"].push_back(load.value());
  }
  return json;
}

const RunTimes& times_of(const Run& run) { return run.measured ? *run.measured : *run.predicted; }

// Predicted and, where there is one, measured: 12.3/13.1.
std::string both(const Run& run, const std::function<Seconds(const RunTimes&)>& value) {
  std::string text;
  if (run.measured) text += ms(value(*run.measured));
  if (run.measured && run.predicted) text += "/";
  if (run.predicted) text += ms(value(*run.predicted));
  return text;
}

std::string interval_text(const Run& run) {
  if (!run.measured) return "";
  const ConfidenceInterval interval = median_interval(run.measured->samples);
  return fmt::format("{} to {}", ms(interval.low), ms(interval.high));
}

std::string error_text(const Run& run) {
  if (!run.measured || !run.predicted) return "";
  return fmt::format("{:+.1f}", 100 * (run.predicted->iteration / run.measured->iteration - 1));
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
      in_turn && paired_difference(base->measured->samples, run.measured->samples).none();
  const double ratio = times_of(*base).iteration / times_of(run).iteration;
  return fmt::format("{}{:.2f}", same ? "= " : "", ratio);
}

using Columns = std::vector<Table::Column>;

Columns first_columns() {
  return {{"model", Table::Align::kLeft}, {"workers"}, {"algorithm", Table::Align::kLeft}};
}

std::vector<std::string> first_cells(const Run& run) {
  return {run.model, std::to_string(run.world), run.label};
}

void add_iteration_columns(Columns& columns) {
  for (const char* title : {"paper ms", "median ms", "95 % interval", "predicted ms", "error %"}) {
    columns.push_back({title});
  }
}

void add_iteration_cells(const Run& run, std::vector<std::string>& cells) {
  cells.push_back(run.paper ? ms(*run.paper) : "");
  cells.push_back(run.measured ? ms(run.measured->iteration) : "");
  cells.push_back(interval_text(run));
  cells.push_back(run.predicted ? ms(run.predicted->iteration) : "");
  cells.push_back(error_text(run));
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
    cells.push_back(fmt::format("{:.2f}", times_of(run).sent_bytes / 1e6));
    cells.push_back(both(run, [](const RunTimes& times) { return times.factor_messages; }));
    const std::optional<double> hidden = hidden_share(times_of(run));
    cells.push_back(hidden ? fmt::format("{:.0f}", 100 * *hidden) : "");
    table.add_row(cells);
  }
  table.drop_empty_columns();
  return table.text() + "SP1, SP2: times as fast as d-kfac and mpd-kfac; =: no difference\n";
}

std::string parts_table(std::span<const Run> runs, std::span<const Category> parts) {
  Columns columns = first_columns();
  for (const Category category : parts) columns.push_back({std::string(category_title(category))});
  columns.push_back({"together"});
  Table table(columns);
  for (const Run& run : runs) {
    std::vector<std::string> cells = first_cells(run);
    for (const Category category : parts) {
      cells.push_back(both(run, [&](const RunTimes& times) { return times.breakdown[category]; }));
    }
    cells.push_back(both(run, [&](const RunTimes& times) {
      Seconds sum;
      for (const Category category : parts) sum += times.breakdown[category];
      return sum;
    }));
    table.add_row(cells);
  }
  return table.text();
}

std::string ablation_table(std::span<const Run> runs) {
  Columns columns = first_columns();
  add_iteration_columns(columns);
  columns.push_back({"times as fast"});
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
  Columns columns{{"model", Table::Align::kLeft}, {"workers"}};
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
          both(runs[i], [](const RunTimes& times) { return times.iteration; });
    }
    table.add_row(cells);
  }
  return table.text();
}

std::string errors_text(std::span<const Run> runs) {
  double sum = 0;
  double largest = 0;
  int count = 0;
  for (const Run& run : runs) {
    if (!run.measured || !run.predicted) continue;
    const double error = std::abs(run.predicted->iteration / run.measured->iteration - 1);
    sum += error;
    largest = std::max(largest, error);
    ++count;
  }
  if (count == 0) return "";
  return fmt::format(
      "measured/predicted ms; error of predicted iterations: {:.1f} % on average, "
      "{:.1f} % at most\n",
      100 * sum / count, 100 * largest);
}

}  // namespace

Json to_json(const Run& run) {
  Json json = {{"model", run.model}, {"world", run.world}, {"algorithm", run.algorithm},
               {"label", run.label}, {"paper", nullptr},   {"predicted", nullptr},
               {"measured", nullptr}};
  if (run.paper) json["paper"] = run.paper->value();
  if (run.predicted) json["predicted"] = to_json(*run.predicted);
  if (run.measured) json["measured"] = to_json(*run.measured);
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

Seconds factor_messages(const Trace& trace) {
  Seconds sum;
  for (const TraceEvent& event : trace.events()) {
    const bool counts =
        event.rank == 0 && event.lane == Lane::kChannel && event.category == Category::kFactorComm;
    if (counts) sum += event.duration;
  }
  return sum;
}

std::optional<double> hidden_share(const RunTimes& times) {
  if (times.factor_messages <= Seconds(0)) return std::nullopt;
  const double exposed = times.breakdown[Category::kFactorComm] / times.factor_messages;
  return std::max(0.0, 1 - exposed);
}

std::string runs_text(const std::string& experiment, std::span<const Run> runs) {
  if (runs.empty()) return "nothing was run\n";
  constexpr Category kPipelining[] = {Category::kFactorComp, Category::kFactorComm};
  constexpr Category kPlacement[] = {Category::kInverseComp, Category::kInverseComm};
  std::string text;
  if (experiment == "breakdown") {
    text = parts_table(runs, kCategories);
  } else if (experiment == "pipelining") {
    text = parts_table(runs, kPipelining);
  } else if (experiment == "placement") {
    text = parts_table(runs, kPlacement);
  } else if (experiment == "ablation") {
    text = ablation_table(runs);
  } else if (experiment == "scaling") {
    text = scaling_table(runs);
  } else {
    text = iteration_table(runs);
  }
  return text + errors_text(runs);
}

}  // namespace spdkfac
