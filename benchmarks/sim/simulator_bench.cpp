// SPDX-License-Identifier: Apache-2.0
// How long the simulation of one iteration takes. Arguments: layers, workers. 156 layers are
// ResNet-152 itself. With the trace of every rank, as `spdkfac simulate` needs it.
#include <benchmark/benchmark.h>

#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/simulator.h"
#include "support/resized_model.h"

namespace spdkfac {
namespace {

void run(benchmark::State& state, const PlanOptions& options, bool trace) {
  const ModelSpec model = resized_model("resnet152", state.range(0));
  const CostModel costs = bundled_cluster("paper-64x2080ti");
  const Plan plan = make_plan(model, costs, static_cast<int>(state.range(1)), options);
  SimulationOptions simulation;
  simulation.trace = trace;
  std::size_t events = 0;
  for (auto _ : state) {
    IterationResult result = simulate(plan, model, costs, simulation);
    events = result.trace.events().size();
    benchmark::DoNotOptimize(result.iteration);
  }
  state.counters["events"] = static_cast<double>(events);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Unit(benchmark::kMillisecond)->ArgNames({"layers", "workers"});
  bench->Args({39, 1024})->Args({78, 1024})->Args({156, 1024});
  bench->Args({156, 64})->Args({156, 256});
}

const bool kRegistered = [] {
  for (const char* name : {"d-kfac", "mpd-kfac", "spd-kfac", "owner-blocks"}) {
    benchmark::RegisterBenchmark((std::string("simulate/") + name).c_str(), run, preset(name), true)
        ->Apply(sizes);
  }
  benchmark::RegisterBenchmark("simulate_without_trace/spd-kfac", run, preset("spd-kfac"), false)
      ->Apply(sizes);
  return true;
}();

}  // namespace
}  // namespace spdkfac
