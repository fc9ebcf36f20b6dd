// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "spdkfac/bench/paper.h"
#include "spdkfac/bench/run_bench.h"
#include "spdkfac/sim/predict.h"

namespace spdkfac::bench {

RunBenchResult simulate_runs(const Experiment& experiment, const std::vector<ModelSpec>& models,
                             const CostModel& costs, const std::vector<int>& worlds, bool traces) {
  RunBenchResult result;
  result.head.experiment = experiment.name;
  result.table = experiment.table;
  result.head.mode = report::RecordMode::kSimulated;
  result.head.cluster = costs.name;
  for (const ModelSpec& model : models) {
    for (const int world : worlds) {
      for (const Variant& variant : experiment.variants) {
        const int ranks = variant.world.value_or(world);
        Prediction forecast = predict(model, costs, ranks, variant.options, {});
        if (!traces) forecast.result.trace = Trace();
        report::Run run;
        run.model = model.name;
        run.world = ranks;
        run.algorithm = variant.options.algorithm;
        run.label = variant.label;
        run.paper = paper_iteration(costs.name, ranks, model.name, variant.options);
        run.forecast = std::move(forecast.result);
        if (experiment.table == report::RunTable::kPlacement) run.owners = forecast.plan.placements;
        result.runs.push_back(std::move(run));
      }
    }
  }
  return result;
}

}  // namespace spdkfac::bench
