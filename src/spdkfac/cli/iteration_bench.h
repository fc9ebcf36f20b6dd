// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/base/trace.h"
#include "spdkfac/cli/train_options.h"
#include "spdkfac/runtime/kfac_options.h"

namespace spdkfac::cli {

struct IterationBenchOptions {
  std::string model = "resnet50";
  double width = 1;
  std::vector<std::int64_t> input;  // channels, height, width
  std::int64_t batch = 0;           // of each rank
  std::string device = "cpu";
  int threads = 0;  // 0: torch's choice
  std::int64_t steps = 20;
  std::vector<std::string> algorithms = {"sgd", "d-kfac", "mpd-kfac", "spd-kfac", "auto"};
  RankOptions ranks;
  std::string trace;  // file of the last step of the last algorithm; empty: none
};

struct IterationSamples {
  std::string algorithm;
  std::vector<double> seconds;   // of each step, of its slowest rank
  double predicted = 0;          // by the simulator, for the plan that was followed
  CategoryTimes measured_parts;  // medians of the first rank
  CategoryTimes predicted_parts;
  double bytes = 0;  // sent by a rank in a step
  // Median seconds that factor messages were on their way on the first rank, hidden or not.
  double factor_messages = 0;
};

struct IterationBenchResult {
  int world = 1;
  bool first_rank = true;
  std::string costs;  // what the plans and predictions are made from
  std::vector<IterationSamples> algorithms;
};

// Iteration times of algorithms on the ranks of mpirun: one step of each in turn, again and again.
// Plans are made again from measured times of layers before anything counts.
IterationBenchResult bench_iteration(const IterationBenchOptions& options);

std::string to_text(const IterationBenchOptions& options, const IterationBenchResult& result);
Json to_json(const IterationBenchOptions& options, const IterationBenchResult& result);

}  // namespace spdkfac::cli
