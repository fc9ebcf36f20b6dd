// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/replay.h"

#include <utility>

#include "spdkfac/sim/simulator.h"
#include "spdkfac/trace/breakdown.h"
#include "spdkfac/trace/statistics.h"

namespace spdkfac::bench {

CategoryTimes median_parts(const std::vector<CategoryTimes>& samples) {
  CategoryTimes result;
  for (const Category category : kCategories) {
    std::vector<double> values;
    for (const CategoryTimes& sample : samples) values.push_back(sample[category].value());
    result[category] = Seconds(trace::quantile(values, 0.5));
  }
  return result;
}

void average_passes(std::vector<TimedSteps>& variants) {
  if (variants.empty()) return;
  for (const auto pass : {&LayerTimes::forward, &LayerTimes::backward}) {
    for (std::size_t layer = 0; layer < variants.front().model.layers.size(); ++layer) {
      Seconds sum;
      for (const TimedSteps& one : variants) sum += one.model.layers[layer].times.value().*pass;
      for (TimedSteps& one : variants) {
        one.model.layers[layer].times.value().*pass = sum / static_cast<double>(variants.size());
      }
    }
  }
}

IterationResult replay(const TimedSteps& timed, const CostModel& costs, const Plan& plan,
                       BreakdownOf whose) {
  const auto simulated = [&](std::size_t step) {
    return simulate(plan, timed.model, costs, {.slow_parts = timed.slowness[step]});
  };
  std::vector<double> iterations;
  std::vector<CategoryTimes> parts;
  for (std::size_t step = 0; step < timed.slowness.size(); ++step) {
    const IterationResult one = simulated(step);
    iterations.push_back(one.iteration.value());
    parts.push_back(whose == BreakdownOf::kMeanOfRanks ? mean_breakdown(one.trace) : one.breakdown);
  }
  // Simulated once more, because the traces of all steps could fill the memory.
  IterationResult result = simulated(trace::middle_sample(iterations));
  result.iteration = Seconds(trace::quantile(iterations, 0.5));
  result.breakdown = median_parts(parts);
  return result;
}

}  // namespace spdkfac::bench
