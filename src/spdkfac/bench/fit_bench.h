// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "spdkfac/bench/progress.h"
#include "spdkfac/report/cost_curves.h"
#include "spdkfac/train/train_options.h"

namespace spdkfac::bench {

// What inversions or messages cost by their size.
struct FitBenchOptions {
  bool inverse = false;  // else: comm
  std::int64_t max_elements = std::int64_t{1} << 22;
  std::int64_t max_dim = 2048;
  int repetitions = 10;
  std::string device = "cpu";
  int threads = 0;  // 0: torch's choice
  train::RankOptions ranks;
};

// What the cluster of the options says.
report::CostCurves simulate_fits(const FitBenchOptions& options);
// Measures on the ranks of mpirun and fits; nothing on all ranks but the first.
std::optional<report::CostCurves> measure_fits(const FitBenchOptions& options,
                                               const ProgressListener& progress = {});

}  // namespace spdkfac::bench
