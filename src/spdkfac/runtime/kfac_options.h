// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/solver.h"
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
  // What gradients are multiplied with. kAdam sets the length of updates itself: it needs kl_clip =
  // 0 and no graft. It and kEkfac take their numbers from graft_adam.
  Solver solver = Solver::kInverse;
  double damping = 0.01;  // γ
  // Every 5 steps γ follows what the step did to the loss (StepControl::judge_damping).
  bool lm_damping = false;
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
  // Whether an update has the length of a step of SGD or Adam, so that their rates suit it.
  bool sets_length() const { return graft != Graft::kNone || solver == Solver::kAdam; }
  // Of the optimizer, for kl_clip, when step() is not told it.
  std::optional<double> learning_rate = std::nullopt;
  Refresh interval = Refresh::kFixed;
  std::int64_t factor_interval = 1;   // steps between new factors; unless fixed, the most
  std::int64_t inverse_interval = 1;  // steps between new inverses; unless fixed, the most
  // Of adaptive intervals: the relative change of a factor that renews its layer's inverses.
  double refresh_change = 0.1;
  // Of the steps of an inverse interval each that renews factors renews some layers' inverses, so
  // that none is slow; not with adaptive intervals.
  bool spread_refreshes = false;
  RefreshIntervals intervals() const {
    return {.factors = factor_interval, .inverses = inverse_interval, .spread = spread_refreshes};
  }
  // Factors of layers with more rows, examples times positions, come from a sample of so many of
  // them, but at least an eighth; 0: from all.
  std::int64_t factor_rows = 0;
  bool norms = false;  // cover them, too, in a model whose layers are not given
  // Factors of more rows are not kept whole, but as large_factors says.
  std::int64_t max_dimension = FactorLimit().max_dimension;
  LargeFactors large_factors = LargeFactors::kDiagonal;
  FactorLimit factor_limit() const { return {max_dimension, large_factors}; }
  Sharing sharing = Sharing::kExpand;  // of a Curvature; a Preconditioner has kExpand alone
  // What factors, inverses and messages may take on a rank; none: what is free.
  std::optional<Bytes> memory_limit = std::nullopt;
  Bytes patch_memory = kDefaultPatchMemory;
  Precision precision = Precision::kTf32;  // of products on a GPU
  bool trace = false;                      // record each step's Trace
};

// What may change while training; what is not set stays.
struct KfacChanges {
  std::optional<double> damping = std::nullopt;
  std::optional<double> kl_clip = std::nullopt;
  std::optional<std::int64_t> factor_interval = std::nullopt;
  std::optional<std::int64_t> inverse_interval = std::nullopt;
};
KfacOptions with_changes(KfacOptions options, const KfacChanges& changes);

// Throws a ConfigError that names the field, its value and its range.
void validate(const KfacOptions& options);

// One line of all fields that change what is computed; states with different digests do not mix.
std::string digest(const KfacOptions& options);

// For states: the digest of the options at the start, and what has changed since, if anything.
std::string digest_with_changes(const KfacOptions& first, const KfacOptions& now);
// The options that such a text was made of; a ConfigError if it did not start with these.
KfacOptions options_of_digest(const KfacOptions& first, const std::string& text);

}  // namespace spdkfac
