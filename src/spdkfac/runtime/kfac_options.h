// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/units.h"
#include "spdkfac/kfac/graft.h"
#include "spdkfac/kfac/modes.h"
#include "spdkfac/kfac/precision.h"
#include "spdkfac/plan/refresh_intervals.h"

namespace spdkfac {

// The number of examples of a pass, from the input of its first layer and the rows of that input.
using ExampleCounter = std::function<std::int64_t(const at::Tensor& input, std::int64_t rows)>;
// Always the same number.
ExampleCounter number_of_examples(std::int64_t number);
// Each row of the input is one, as for losses that are a mean over tokens.
ExampleCounter tokens_as_examples();

// What a Preconditioner does. The names are those of the flags of `spdkfac train`.
struct KfacOptions {
  double damping = 0.01;  // γ
  Damping damping_mode = Damping::kPi;
  double running_average = 0.95;  // ρ
  bool identity_start = false;    // the running average starts from the identity
  Convention convention = Convention::kKfc;
  LossReduction loss_reduction = LossReduction::kMean;
  // Null: as the shape of the first input and the loss show (docs/numerics.md).
  ExampleCounter examples = nullptr;
  double kl_clip = 0.001;  // κ; 0: off
  // Each layer's update has K-FAC's direction and the length of this method's; needs kl_clip = 0.
  Graft graft = Graft::kNone;
  AdamOptions graft_adam = {};
  // Of the optimizer, for kl_clip, when step() is not told it.
  std::optional<double> learning_rate = std::nullopt;
  std::int64_t factor_interval = 1;   // steps between new factors
  std::int64_t inverse_interval = 1;  // steps between new inverses
  bool growing_intervals = false;     // up to these: often early, rarely later (RefreshSchedule)
  RefreshIntervals intervals() const { return {factor_interval, inverse_interval}; }
  // Factors of layers with more rows, examples times positions, come from a sample of so many of
  // them, but at least an eighth; 0: from all.
  std::int64_t factor_rows = 0;
  // Factors of more rows are not kept whole, but as large_factors says.
  std::int64_t max_dimension = FactorLimit().max_dimension;
  LargeFactors large_factors = LargeFactors::kDiagonal;
  FactorLimit factor_limit() const { return {max_dimension, large_factors}; }
  // What factors, inverses and messages may take on a rank; none: what is free.
  std::optional<Bytes> memory_limit = std::nullopt;
  Bytes patch_memory = kDefaultPatchMemory;
  Precision precision = Precision::kTf32;  // of products on a GPU
  bool trace = false;                      // record each step's Trace
};

// Throws a ConfigError that names the field, its value and its range.
void validate(const KfacOptions& options);

// One line of all fields that change what is computed; states with different digests do not mix.
std::string digest(const KfacOptions& options);

}  // namespace spdkfac
