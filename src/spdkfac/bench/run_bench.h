// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "spdkfac/bench/bench_model.h"
#include "spdkfac/bench/experiments.h"
#include "spdkfac/bench/progress.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/report/record.h"
#include "spdkfac/report/run.h"
#include "spdkfac/train/rank_report.h"
#include "spdkfac/train/train_options.h"

namespace spdkfac::bench {

// What an experiment found. Runs keep the traces of their iterations where they were asked for.
struct RunBenchResult {
  report::RecordHead head;
  report::RunTable table = report::RunTable::kIteration;
  std::vector<report::Run> runs;
  // For each measured run what each rank holds between steps.
  std::vector<std::vector<train::RankFigures>> memory;
  bool first_rank = true;
};

struct MeasuredBenchOptions {
  std::vector<BenchSetting> settings;  // one model after the other; device and threads are alike
  train::RankOptions ranks;
  // 0: the ranks of mpirun. Otherwise this process does the work of one rank of so many, on the
  // network of the cluster in `ranks`: of each plan the one that computes longest.
  int emulated_world = 0;
  ProgressListener progress;
};

// Real iterations on the ranks of mpirun or on an emulated one, one step of each variant in turn,
// again and again. Forecasts are made before the first step; plans are made again from measured
// times of layers before anything counts, and replays follow those plans.
RunBenchResult measure_runs(const Experiment& experiment, const MeasuredBenchOptions& options);

// Forecasts of each model on each number of ranks. Their traces are kept only if asked for: those
// of many ranks have millions of events.
RunBenchResult simulate_runs(const Experiment& experiment, const std::vector<ModelSpec>& models,
                             const CostModel& costs, const std::vector<int>& worlds, bool traces);

std::string to_text(const RunBenchResult& result);
// The record (docs/records.md); with `traces` also the events of the first ranks.
Json to_json(const RunBenchResult& result, bool traces);
// What ranks hold between steps, and as a record of experiment `memory`.
std::string memory_text(const RunBenchResult& result);
Json memory_record(const RunBenchResult& result);

}  // namespace spdkfac::bench
