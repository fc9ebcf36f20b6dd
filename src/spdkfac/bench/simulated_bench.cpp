// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "spdkfac/bench/paper.h"
#include "spdkfac/bench/run_bench.h"

namespace spdkfac::bench {

RunBenchResult simulate_runs(const Experiment& experiment, const std::vector<ModelSpec>& models,
                             const CostModel& costs, const std::vector<int>& worlds, bool traces) {
  RunBenchResult result;
  result.head.experiment = experiment.name;
  result.head.mode = RecordMode::kSimulated;
  result.head.cluster = costs.name;
  for (const ModelSpec& model : models) {
    for (const int world : worlds) {
      for (const Variant& variant : experiment.variants) {
        const int workers = variant.world.value_or(world);
        report::Predicted predicted = report::predict(model, costs, workers, variant.options, {});
        Run run;
        run.model = model.name;
        run.world = workers;
        run.algorithm = variant.options.algorithm;
        run.label = variant.label;
        run.paper = paper_iteration(costs.name, workers, model.name, variant.options);
        run.predicted = report::run_times(predicted);
        if (experiment.name == "placement") run.owners = predicted.plan.placements;
        result.runs.push_back(std::move(run));
        if (traces) result.traces.push_back({std::move(predicted.trace), std::nullopt});
      }
    }
  }
  return result;
}

}  // namespace spdkfac::bench
