// SPDX-License-Identifier: Apache-2.0
// How long planning takes. Arguments: layers, workers. The model is DenseNet-201's table repeated
// or cut to the number of layers, so that 201 layers are the model itself.
#include <benchmark/benchmark.h>

#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/auto_planner.h"
#include "support/resized_model.h"

namespace spdkfac {
namespace {

void run(benchmark::State& state, const PlanOptions& options) {
  const ModelSpec model = resized_model("densenet201", state.range(0));
  const CostModel costs = bundled_cluster("paper-64x2080ti");
  const int world = static_cast<int>(state.range(1));
  for (auto _ : state) {
    benchmark::DoNotOptimize(make_best_plan(model, costs, world, options, {}));
  }
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Unit(benchmark::kMillisecond)->ArgNames({"layers", "workers"});
  bench->Args({51, 1024})->Args({101, 1024})->Args({201, 1024});
  bench->Args({201, 64})->Args({201, 256});
}

const bool kRegistered = [] {
  for (const AlgorithmInfo& info : named_algorithms()) {
    benchmark::RegisterBenchmark(("make_plan/" + info.name).c_str(), run, info.options)
        ->Apply(sizes);
  }
  benchmark::RegisterBenchmark("make_plan/auto", run, preset(kAutoAlgorithm))->Apply(sizes);
  return true;
}();

}  // namespace
}  // namespace spdkfac
