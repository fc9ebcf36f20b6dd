// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "spdkfac/calibrate/calibration.h"
#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/cost_model.h"

namespace spdkfac::calibrate {

struct QuickCalibrationOptions {
  // Measure even if the cache knows the costs.
  bool recalibrate = false;
  // What ranks talk through, where the program has a choice: other costs, other cache.
  std::string transport = {};
  // Of the cache; empty: $XDG_CACHE_HOME/spdkfac, or ~/.cache/spdkfac.
  std::filesystem::path cache_folder = {};
  // Instead of quick_sizes(); the same on all ranks.
  std::optional<CalibrationOptions> sizes = {};
};

struct QuickCalibration {
  CostModel costs;             // the same on all ranks
  bool measured = false;       // now; otherwise from the cache
  std::filesystem::path file;  // of the cache, on rank 0; empty if there is no folder for one
  std::string warning;  // on rank 0: what is wrong with the cache, which is no reason to fail
};

// Cost models for a run without a cluster file, by all ranks together: from a file of rank 0 if
// these hosts, this number of ranks, device, threads and transport were measured before; otherwise
// measured in a few seconds, and kept. A cache that cannot be read is replaced by a new
// measurement.
QuickCalibration quick_calibration(Communicator& communicator, c10::Device device,
                                   const QuickCalibrationOptions& options = {});

}  // namespace spdkfac::calibrate
