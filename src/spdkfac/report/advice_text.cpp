// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/advice_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "spdkfac/plan/plan_options_file.h"
#include "spdkfac/report/number_text.h"
#include "spdkfac/report/plan_text.h"
#include "spdkfac/report/table.h"

namespace spdkfac::report {
namespace {

const char* needs_name(sim::Needs needs) {
  static constexpr const char* kNames[] = {"option", "hardware"};
  return kNames[static_cast<std::size_t>(needs)];
}

// Nothing at all takes no time: rates and speed-ups are then without limit.
std::string number(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "∞";
}

Seconds saved(const sim::Advice& advice, const sim::Limit& limit) {
  return std::max(Seconds(0), advice.iteration - limit.without);
}

double share(const sim::Advice& advice, Seconds time) {
  return advice.iteration > Seconds(0) ? time / advice.iteration : 0;
}

std::string limiting_text(const sim::Advice& advice) {
  const auto& limits = advice.limits;
  const auto most = std::find_if(limits.begin(), limits.end(), [&](const sim::Limit& limit) {
    return limit.id == advice.limiting;
  });
  if (most == limits.end()) return "No single part limits the iteration.\n";
  const auto bound =
      std::max_element(limits.begin(), limits.end(),
                       [](const sim::Limit& a, const sim::Limit& b) { return a.alone < b.alone; });
  return fmt::format(
      "Largest limit: {}.\n{} the iteration would take {} instead of {} ms.\nIf everything else "
      "were free, {} would still take {} ms.\n",
      most->part, most->id == sim::kLargestInverse ? "Divided equally," : "If it were free,",
      milliseconds(most->without), milliseconds(advice.iteration), bound->part,
      milliseconds(bound->alone));
}

std::string limits_text(const AdviceReport& report) {
  const sim::Advice& advice = report.advice;
  Table table({{"part", Table::Align::kLeft},
               {"alone ms"},
               {"without it ms"},
               {"saves %"},
               {"", Table::Align::kLeft}});
  constexpr std::size_t kBarWidth = 30;
  for (const sim::Limit& limit : advice.limits) {
    const double part = share(advice, saved(advice, limit));
    if (limit.alone <= Seconds(0) && part <= 0) continue;  // it costs nothing as it is
    table.add_row({limit.part, limit.alone > Seconds(0) ? milliseconds(limit.alone) : "-",
                   milliseconds(limit.without), fmt::format("{:.1f}", 100 * part),
                   bar(part, kBarWidth)});
  }
  std::string text = "What limits it\n" + table.text() +
                     "alone: everything else is free. without it: this part is free (the largest "
                     "inverse: no larger\nthan an equal share of all). Savings overlap.\n\n" +
                     limiting_text(advice);
  text += fmt::format("The largest inverse takes {} ms, all inverses together {} ms",
                      milliseconds(advice.largest_inverse), milliseconds(advice.all_inverses));
  const int world = report.scenario.world;
  if (world == 1) return text + ".\n";
  return text + fmt::format(
                    ", an equal share of them {} ms.\nIn {} a rank waits {} ms for others on "
                    "average.\n",
                    milliseconds(advice.all_inverses / world),
                    described_step(report.scenario.intervals),
                    milliseconds(average_wait(report.judged)));
}

template <class Predicate>
std::string helps_most(const sim::Advice& advice, const char* words, const Predicate& counts) {
  const auto found = std::find_if(advice.changes.begin(), advice.changes.end(), counts);
  if (found == advice.changes.end() || found->speedup <= 1) return "";
  return fmt::format("Most gained {}: {}, speed-up {}.\n", words, found->what,
                     number(found->speedup, 2));
}

std::string changes_text(const sim::Advice& advice, bool wide) {
  Table table({{"change", Table::Align::kLeft},
               {"needs", Table::Align::kLeft},
               {"iteration ms"},
               {"examples/s"},
               {"speed-up"},
               {"effect on training", Table::Align::kLeft}});
  for (const sim::Change& change : advice.changes) {
    table.add_row({change.what, needs_name(change.needs), milliseconds(change.iteration),
                   number(change.examples_per_second, 0), number(change.speedup, 2),
                   change.training.empty() ? "none" : change.training});
  }
  if (!wide) table.drop_column("examples/s");
  return "What would help\n" + table.text() +
         "Speed-ups are of examples a second. Assumed: twice the batch computes twice as long,\n"
         "faster computation leaves host work as it is.\n\n" +
         helps_most(advice, "by flags",
                    [](const sim::Change& c) { return c.needs == sim::Needs::kOption; }) +
         helps_most(advice, "by hardware",
                    [](const sim::Change& c) { return c.needs == sim::Needs::kHardware; }) +
         helps_most(advice, "with no effect on training",
                    [](const sim::Change& c) { return c.training.empty(); });
}

Json to_json(const sim::Advice& advice, const sim::Limit& limit) {
  return {{"part", limit.id},
          {"alone_seconds", limit.alone.value()},
          {"without_seconds", limit.without.value()},
          {"share", share(advice, saved(advice, limit))}};
}

Json to_json(const sim::Change& change) {
  return {{"change", change.id},
          {"text", change.what},
          {"needs", needs_name(change.needs)},
          {"training", change.training},
          {"world", change.world},
          {"batch", change.batch},
          {"iteration_seconds", change.iteration.value()},
          {"examples_per_second", change.examples_per_second},
          {"speedup", change.speedup},
          {"options", to_json(OptionsAndIntervals{change.options, change.intervals})}};
}

}  // namespace

std::string to_text(const AdviceReport& report, bool wide) {
  const sim::Scenario& s = report.scenario;
  std::string text = s.options.algorithm == kAutoAlgorithm ? "The best plan\n" : "The plan\n";
  text += plan_summary(report.judged.plan, s.model, s.costs.for_world(s.world));
  if (s.intervals.inverses > 1) {
    text += fmt::format("average iteration {} ms\n", milliseconds(report.advice.iteration));
  }
  return text + "\nThe algorithms\n" + comparison_text(report.algorithms, wide) + "\n" +
         limits_text(report) + "\n" + changes_text(report.advice, wide);
}

Json to_json(const AdviceReport& report) {
  const sim::Scenario& s = report.scenario;
  const sim::Advice& advice = report.advice;
  Json algorithms = Json::array();
  for (const Prediction& prediction : report.algorithms) algorithms.push_back(to_json(prediction));
  Json limits = Json::array();
  for (const sim::Limit& limit : advice.limits) limits.push_back(to_json(advice, limit));
  Json changes = Json::array();
  for (const sim::Change& change : advice.changes) changes.push_back(to_json(change));
  return {{"format", "spdkfac.advice/2"},
          {"algorithm", s.options.algorithm},
          {"model", s.model.name},
          {"batch", s.model.batch},
          {"cluster", s.costs.name},
          {"world", s.world},
          {"iteration_seconds", advice.iteration.value()},
          {"examples_per_second", advice.examples_per_second},
          {"options", to_json(OptionsAndIntervals{advice.options, s.intervals})},
          {"digest", report.judged.plan.digest()},
          {"limiting", advice.limiting.empty() ? Json() : Json(advice.limiting)},
          {"limits", std::move(limits)},
          {"largest_inverse_seconds", advice.largest_inverse.value()},
          {"all_inverses_seconds", advice.all_inverses.value()},
          {"average_wait_seconds", average_wait(report.judged).value()},
          {"changes", std::move(changes)},
          {"algorithms", std::move(algorithms)}};
}

}  // namespace spdkfac::report
