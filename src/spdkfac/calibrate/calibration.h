// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "spdkfac/calibrate/fits.h"
#include "spdkfac/calibrate/machine.h"
#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/cost_model.h"

namespace spdkfac::calibrate {

// What is measured; the same on all ranks.
struct CalibrationOptions {
  std::string name = "calibrated";
  // Messages from kSmallestMessage to max_elements, each element_ratio times the one before.
  std::int64_t max_elements = std::int64_t{64} << 20;
  double element_ratio = 2;
  // Inversions from kSmallestDim to max_dim.
  std::int64_t max_dim = 2048;
  double dim_ratio = 1.4142135623730951;
  std::int64_t batch = 4;  // examples of forward passes and factors
  int repetitions = 10;
  // About how long collectives may take, and computation again: the largest sizes are left out.
  std::optional<Seconds> budget;
};
constexpr std::int64_t kSmallestMessage = 1024;
constexpr std::int64_t kSmallestDim = 16;

// For a cluster file. The largest inversion is 2048 on a CPU: that is half a second a sample, from
// there on the time grows with the cube of the dimension, and 8192 would take half a minute.
CalibrationOptions full_calibration(c10::Device device);
// A few sizes in a few seconds.
CalibrationOptions quick_sizes(c10::Device device);

// Told on every rank, between samples.
struct CalibrationObserver {
  std::function<void(Seconds estimate, std::size_t samples)> begin;
  std::function<void()> advance;  // after each of the samples
};

struct Calibration {
  CostModel costs;
  std::string text;                         // its cluster file; the same bytes on all ranks
  std::vector<CollectiveFits> collectives;  // empty on one rank
  InverseFits inverse;
  Machine machine;
  Seconds estimate;  // before, of all that follows the first trials
  Seconds elapsed;
};

// Measures collectives, inversions and the other parts of a step on all ranks at the same time, and
// fits cost models to them (docs/calibration.md). One rank has no collectives: they cost nothing.
Calibration calibrate(Communicator& communicator, c10::Device device,
                      const CalibrationOptions& options, const CalibrationObserver& observer = {});

}  // namespace spdkfac::calibrate
