// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/trace/trace.h"

namespace spdkfac {

// One iteration as it was simulated or measured.
struct RunTimes {
  Seconds iteration;                   // measured: the median of the samples
  std::vector<double> samples;         // measured: seconds of each step on its slowest rank
  CategoryTimes breakdown;             // of the rank that computes longest; measured: medians
  double sent_bytes = 0;               // by a rank, on average
  Seconds factor_messages;             // that factors were on their way, hidden or not
  std::vector<Seconds> inverse_loads;  // simulated: inversions by rank
};

// One algorithm on one model and number of workers: a row of an experiment.
struct Run {
  std::string model;
  int world = 1;
  std::string algorithm;  // the preset that it is made from
  std::string label;      // as the paper calls it, or the preset
  std::optional<Seconds> paper;
  std::optional<RunTimes> predicted;
  std::optional<RunTimes> measured;
  std::vector<FactorPlacement> owners;
};

Json to_json(const Run& run);

// On the channel of rank 0.
Seconds factor_messages(const Trace& trace);
// Share of the factor messages' time that computation hides; nothing without messages.
std::optional<double> hidden_share(const RunTimes& times);

// The rows of an experiment for people, each with what the experiment asks: `iteration` times and
// speed-ups, `breakdown` all parts, `pipelining` factors, `placement` inverses, `ablation` the gain
// over the first row, `scaling` iteration times by number of workers.
std::string runs_text(const std::string& experiment, std::span<const Run> runs);

}  // namespace spdkfac
