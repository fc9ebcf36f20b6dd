// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/prediction.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/report/number_text.h"
#include "spdkfac/report/table.h"

namespace spdkfac::report {
namespace {

constexpr std::size_t kBarWidth = 30;

// Is the iteration the average of a cycle with cheaper steps than the full one?
bool is_average(const Prediction& p) { return p.result.iteration < p.full_step; }

std::string utilisation_text(const Prediction& p) {
  if (p.utilisation.empty() || p.full_step <= Seconds(0)) return "";
  const auto [low, high] = std::minmax_element(
      p.utilisation.begin(), p.utilisation.end(),
      [](const RankUtilisation& a, const RankUtilisation& b) { return a.compute < b.compute; });
  const RankUtilisation& busiest = *high;
  std::string text =
      fmt::format("ranks compute {:.1f} to {:.1f} % of {}", 100 * (low->compute / p.full_step),
                  100 * (busiest.compute / p.full_step), described_step(p.intervals));
  if (busiest.channel > Seconds(0)) {
    text += fmt::format("; the channel is busy {:.1f} % of it, {:.1f} % of that hidden",
                        100 * (busiest.channel / p.full_step),
                        100 * (busiest.hidden / busiest.channel));
  }
  return text + "\n";
}

}  // namespace

std::string_view described_step(const RefreshIntervals& intervals) {
  return intervals.spread ? "the slowest step" : "a full step";
}

std::pair<Seconds, Seconds> inverse_range(const Prediction& p) {
  const std::vector<Seconds>& loads = p.result.inverse_load;
  if (loads.empty()) return {};
  const auto [low, high] = std::minmax_element(loads.begin(), loads.end());
  return {*low, *high};
}

std::string heading(const Prediction& p) {
  return fmt::format("{}, batch {}, on {} rank{} of {}\n", p.model, p.batch, p.world,
                     p.world == 1 ? "" : "s", p.cluster);
}

std::string_view category_title(Category category) {
  constexpr std::string_view kTitles[kCategoryCount] = {"FF&BP",       "GradComm",    "FactorComp",
                                                        "FactorComm",  "InverseComp", "InverseComm",
                                                        "Precondition"};
  return kTitles[static_cast<std::size_t>(category)];
}

Json to_json(const Prediction& p) {
  Json parts;
  for (const Category category : kCategories) {
    parts[std::string(category_name(category))] = p.result.breakdown[category].value();
  }
  const auto [smallest, largest] = inverse_range(p);
  Json result = {
      {"format", "spdkfac.prediction/2"},
      {"algorithm", p.algorithm},
      {"world", p.world},
      {"iteration_seconds", p.result.iteration.value()},
      {"breakdown_seconds", std::move(parts)},
      {"bytes_per_worker", p.result.sent_bytes},
      {"model", p.model},
      {"batch", p.batch},
      {"cluster", p.cluster},
      {"factor_interval", p.intervals.factors},
      {"inverse_interval", p.intervals.inverses},
      {"exposed_communication_seconds", exposed_communication(p.result.breakdown).value()},
      {"full_step_seconds", p.full_step.value()},
      {"full_step_inverse_max_seconds", largest.value()},
      {"full_step_inverse_min_seconds", smallest.value()}};
  if (p.intervals.growing_over > 0) result["growing_over"] = p.intervals.growing_over;
  if (p.intervals.spread) result["spread_refreshes"] = true;
  return result;
}

Prediction parse_prediction(const Json& document, const std::string& where) {
  JsonObject object{JsonValue(document, where)};
  object.expect_format("spdkfac.prediction/2");
  const auto seconds = [&](const char* key) {
    return Seconds(object.required(key).non_negative_number());
  };
  Prediction p;
  p.algorithm = object.required("algorithm").non_empty_string();
  p.model = object.required("model").non_empty_string();
  p.cluster = object.required("cluster").string();
  p.batch = object.required("batch").integer(1, std::numeric_limits<std::int64_t>::max());
  p.world = static_cast<int>(object.required("world").integer(1, kMaxWorld));
  const auto interval = [&](const char* key, std::int64_t& field, std::int64_t least) {
    if (const auto value = object.optional(key)) field = value->integer(least, kMaxInterval);
  };
  interval("factor_interval", p.intervals.factors, 1);
  interval("inverse_interval", p.intervals.inverses, 1);
  interval("growing_over", p.intervals.growing_over, 0);
  if (const auto spread = object.optional("spread_refreshes")) {
    p.intervals.spread = spread->boolean();
  }
  p.result.iteration = seconds("iteration_seconds");
  JsonObject parts(object.required("breakdown_seconds"));
  for (const Category category : kCategories) {
    p.result.breakdown[category] =
        Seconds(parts.required(std::string(category_name(category))).non_negative_number());
  }
  parts.finish();
  p.result.sent_bytes = object.required("bytes_per_worker").non_negative_number();
  seconds("exposed_communication_seconds");  // follows from the breakdown
  p.full_step = seconds("full_step_seconds");
  p.result.inverse_load = {seconds("full_step_inverse_min_seconds"),
                           seconds("full_step_inverse_max_seconds")};
  object.finish();
  return p;
}

std::string describe(const Prediction& p) {
  std::string text = heading(p) + fmt::format("{}: {} ms per iteration", p.algorithm,
                                              milliseconds(p.result.iteration));
  if (is_average(p)) {
    text += fmt::format(" on average; {} takes {} ms", described_step(p.intervals),
                        milliseconds(p.full_step));
  }
  text += "\n\n";
  Table table({{"part", Table::Align::kLeft}, {"ms"}, {"%"}, {"", Table::Align::kLeft}});
  for (const Category category : kCategories) {
    const double share =
        p.result.iteration > Seconds(0) ? p.result.breakdown[category] / p.result.iteration : 0;
    table.add_row({std::string(category_title(category)),
                   milliseconds(p.result.breakdown[category]), fmt::format("{:.1f}", 100 * share),
                   bar(share, kBarWidth)});
  }
  text += table.text();
  text += "Communication counts only where no computation hides it.\n\n";
  const auto [smallest, largest] = inverse_range(p);
  const std::string low = milliseconds(smallest);
  const std::string high = milliseconds(largest);
  text += fmt::format("each rank sends {} MB; inverses take {} ms of a rank's time{}\n",
                      megabytes(p.result.sent_bytes),
                      low == high ? high : fmt::format("{} to {}", low, high),
                      is_average(p) ? fmt::format(" in {}", described_step(p.intervals)) : "");
  return text + utilisation_text(p);
}

}  // namespace spdkfac::report
