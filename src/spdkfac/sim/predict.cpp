// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/predict.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/auto_planner.h"

namespace spdkfac {

Seconds average_wait(const Prediction& p) {
  Seconds sum(0);
  for (const RankUtilisation& rank : p.utilisation) {
    sum += p.full_step - (rank.compute + rank.channel - rank.hidden);
  }
  return p.utilisation.empty() ? sum : sum / static_cast<double>(p.utilisation.size());
}

std::optional<double> hidden_share(const IterationResult& result) {
  if (result.factor_messages <= Seconds(0)) return std::nullopt;
  const double exposed = result.breakdown[Category::kFactorComm] / result.factor_messages;
  return std::max(0.0, 1 - exposed);
}

const std::vector<RefreshIntervals>& compared_intervals() {
  static const std::vector<RefreshIntervals> list = {{1, 1}, kMostOfGrowing};
  return list;
}

std::vector<std::string> compared_algorithms(bool all_methods) {
  std::vector<std::string> names;
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (info.name != "kfac" && info.name != "sp-otf") names.push_back(info.name);
  }
  names.emplace_back(kAutoAlgorithm);
  if (!all_methods) return names;
  for (const AlgorithmInfo& info : other_methods()) names.push_back(info.name);
  return names;
}

Prediction predict(const ModelSpec& model, const CostModel& costs, Plan plan,
                   const SimulationOptions& simulation) {
  Prediction p;
  p.algorithm = plan.algorithm;
  p.model = model.name;
  p.cluster = costs.name;
  p.batch = model.batch;
  p.world = plan.world;
  p.intervals = plan.intervals;
  p.result = simulate(plan, model, costs, simulation);
  p.full_step = p.result.iteration;
  p.utilisation = utilisation(p.result.trace);
  plan.predicted_iteration = p.result.iteration;
  plan.predicted_breakdown = p.result.breakdown;
  p.plan = std::move(plan);
  return p;
}

Prediction predict(const ModelSpec& model, const CostModel& costs, int world,
                   const PlanOptions& options, const RefreshIntervals& intervals,
                   const SimulationOptions& simulation) {
  validate(intervals);
  if (world < 1 || world > kMaxWorld) {
    throw ConfigError(
        fmt::format("world: cannot forecast {} ranks; give 1 to {}", world, kMaxWorld));
  }
  const PlanOptions chosen = options.algorithm == kAutoAlgorithm
                                 ? best_options(model, costs, world, intervals, options.solver)
                                 : options;
  std::optional<Prediction> slowest;  // of the full steps
  Seconds iteration;
  CategoryTimes breakdown;
  double sent_bytes = 0;
  double steps = 0;
  std::map<StepKind, Plan> plans;
  for (Plan& plan : cycle_plans(model, costs, world, chosen, intervals)) {
    plan.algorithm = plan.options.algorithm = options.algorithm;
    plans.emplace(plan.step, std::move(plan));
  }
  for (const auto& [step, count, renewed] : refresh_cycle(model, chosen, intervals)) {
    SimulationOptions of_step = simulation;
    of_step.renewed = renewed;
    Prediction one = predict(model, costs, plans.at(step), of_step);
    const double weight = static_cast<double>(count);
    iteration += one.result.iteration * weight;
    for (const Category category : kCategories) {
      breakdown[category] += one.result.breakdown[category] * weight;
    }
    sent_bytes += one.result.sent_bytes * weight;
    steps += weight;
    if (step != StepKind::kFull) continue;
    if (!slowest || one.full_step > slowest->full_step) slowest = std::move(one);
  }
  Prediction result = std::move(slowest.value());
  result.intervals = intervals;
  result.result.iteration = iteration / steps;
  for (const Category category : kCategories) {
    result.result.breakdown[category] = breakdown[category] / steps;
  }
  result.result.sent_bytes = sent_bytes / steps;
  return result;
}

}  // namespace spdkfac
