// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/sim/iteration_result.h"

namespace spdkfac::report {

// One algorithm on one model and number of ranks: a row of an experiment.
struct Run {
  std::string model;
  int world = 1;
  std::string algorithm;         // the preset that it is made from
  std::string label;             // as the paper calls it, or the preset
  std::optional<Seconds> paper;  // the iteration that the paper prints
  // Made before the run, from a layer table and a cost model.
  std::optional<IterationResult> forecast;
  // A simulation fed with the times that were measured in the same run.
  std::optional<IterationResult> replay;
  std::optional<IterationResult> measured;
  std::vector<FactorPlacement> owners;

  // What was measured, or else what is forecast.
  const IterationResult& best() const { return measured ? *measured : forecast.value(); }
};

// Model, number of ranks, algorithm and label: how records name a run.
Json identity_json(const Run& run);
// Runs without their traces. Each measured one names in `alike` the labels of those that it was
// measured in turn with and that its samples cannot tell it from.
Json runs_json(std::span<const Run> runs);
// The events of the first ranks: forecast, replay and measured.
Json traces_json(const Run& run);

// Which columns an experiment shows.
enum class RunTable {
  kIteration,   // iteration times and speed-ups
  kBreakdown,   // all parts
  kPipelining,  // computing and sending factors
  kPlacement,   // computing and sending inverses
  kAblation,    // the gain over the first row
  kScaling,     // iteration times by number of ranks
};

// The rows of an experiment for people.
std::string runs_text(RunTable table, std::span<const Run> runs);

}  // namespace spdkfac::report
