// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/predict.h"

#include <algorithm>

#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/auto_planner.h"

namespace spdkfac::report {

std::vector<std::string> compared_algorithms() {
  std::vector<std::string> names;
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (info.name != "kfac" && info.name != "sp-otf") names.push_back(info.name);
  }
  names.emplace_back(kAutoAlgorithm);
  return names;
}

Predicted predict(const ModelSpec& model, const CostModel& costs, Plan plan,
                  const SimulationOptions& simulation) {
  Simulation run = simulate(plan, model, costs, simulation);
  Predicted result;
  Prediction& p = result.prediction;
  p.algorithm = plan.algorithm;
  p.model = model.name;
  p.cluster = costs.name;
  p.batch = model.batch;
  p.world = plan.world;
  p.iteration = p.full_step = run.iteration;
  p.breakdown = breakdown(run.trace, critical_rank(run.trace));
  p.bytes_per_worker = bytes_per_worker(plan, model);
  const auto [low, high] = std::minmax_element(run.inverse_load.begin(), run.inverse_load.end());
  p.smallest_inverse_load = *low;
  p.largest_inverse_load = *high;
  p.inverse_loads = run.inverse_load;
  p.utilisation = utilisation(run.trace);
  plan.predicted = spdkfac::Predicted{p.iteration, p.breakdown};
  result.plan = std::move(plan);
  result.trace = std::move(run.trace);
  return result;
}

Predicted predict(const ModelSpec& model, const CostModel& costs, int world,
                  const PlanOptions& options, const RefreshIntervals& intervals,
                  const SimulationOptions& simulation) {
  const PlanOptions chosen =
      options.algorithm == kAutoAlgorithm ? best_options(model, costs, world, intervals) : options;
  Predicted result;
  Prediction average;
  double steps = 0;
  for (const auto& [step, count] : refresh_cycle(chosen, intervals)) {
    Plan plan = make_plan(model, costs, world, chosen, intervals, step);
    plan.algorithm = plan.options.algorithm = options.algorithm;
    Predicted one = predict(model, costs, std::move(plan), simulation);
    const double weight = static_cast<double>(count);
    if (step == StepKind::kFull) {
      average = one.prediction;
      average.iteration = Seconds(0);
      average.breakdown = CategoryTimes();
      average.bytes_per_worker = 0;
    }
    average.iteration += one.prediction.iteration * weight;
    for (const Category category : kCategories) {
      average.breakdown[category] += one.prediction.breakdown[category] * weight;
    }
    average.bytes_per_worker += one.prediction.bytes_per_worker * weight;
    steps += weight;
    if (step == StepKind::kFull) result = std::move(one);
  }
  average.iteration = average.iteration / steps;
  for (const Category category : kCategories) {
    average.breakdown[category] = average.breakdown[category] / steps;
  }
  average.bytes_per_worker /= steps;
  result.prediction = std::move(average);
  return result;
}

RunTimes run_times(const Predicted& predicted) {
  const Prediction& prediction = predicted.prediction;
  RunTimes times;
  times.iteration = prediction.iteration;
  times.breakdown = prediction.breakdown;
  times.sent_bytes = prediction.bytes_per_worker;
  times.factor_messages = factor_messages(predicted.trace);
  times.inverse_loads = prediction.inverse_loads;
  return times;
}

}  // namespace spdkfac::report
