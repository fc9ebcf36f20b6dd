// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "spdkfac/base/units.h"
#include "spdkfac/kfac/modes.h"
#include "spdkfac/kfac/precision.h"
#include "spdkfac/plan/refresh_intervals.h"

namespace spdkfac {

// What a Preconditioner does. The names are those of the flags of `spdkfac train`.
struct KfacOptions {
  double damping = 0.01;  // γ
  Damping damping_mode = Damping::kPi;
  double running_average = 0.95;  // ρ
  bool identity_start = false;    // the running average starts from the identity
  Convention convention = Convention::kKfc;
  double kl_clip = 0.001;  // κ; 0: off
  // Of the optimizer, for kl_clip, when step() is not told it.
  std::optional<double> learning_rate = std::nullopt;
  std::int64_t factor_interval = 1;   // steps between new factors
  std::int64_t inverse_interval = 1;  // steps between new inverses
  RefreshIntervals intervals() const { return {factor_interval, inverse_interval}; }
  Bytes patch_memory = kDefaultPatchMemory;
  Precision precision = Precision::kTf32;  // of products on a GPU
  bool trace = false;                      // record each step's Trace
};

// Throws a ConfigError that names the field, its value and its range.
void validate(const KfacOptions& options);

// One line of all fields that change what is computed; states with different digests do not mix.
std::string digest(const KfacOptions& options);

}  // namespace spdkfac
