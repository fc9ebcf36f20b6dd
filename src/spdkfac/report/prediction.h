// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/trace/breakdown.h"
#include "spdkfac/trace/trace.h"

namespace spdkfac {

// What one algorithm is expected to do in an average iteration: the result of a simulation.
struct Prediction {
  std::string algorithm;
  std::string model;
  std::string cluster;
  std::int64_t batch = 1;
  int world = 1;
  Seconds iteration;
  CategoryTimes breakdown;
  double bytes_per_worker = 0;
  std::vector<Seconds> inverse_loads;  // by worker, in a step that inverts
  Seconds largest_inverse_load;
  Seconds smallest_inverse_load;
  std::vector<RankUtilisation> utilisation;  // per rank, of a full step
  Seconds full_step;                         // the iteration that utilisation speaks of
};

// What a worker on average waits for others in a full step: it neither computes nor communicates.
Seconds average_wait(const Prediction& prediction);

// The words for a category in tables: FF&BP, GradComm, … as in the paper.
std::string_view category_title(Category category);

// {"format":"spdkfac.prediction/1", …}
Json to_json(const Prediction& prediction);
// What to_json() gave; what it does not hold, such as the load of each worker, is empty.
Prediction parse_prediction(const Json& document, const std::string& where);

// One prediction for people: parts with bars, traffic, loads, utilisation.
std::string describe(const Prediction& prediction);

// Many predictions of one model side by side, with speed-ups over d-kfac and mpd-kfac where they
// are among them.
std::string comparison_text(std::span<const Prediction> predictions);
// All fields, one line a prediction.
std::string comparison_csv(std::span<const Prediction> predictions);

// Iteration times by number of workers (rows) and algorithm (columns).
std::string scaling_text(std::span<const Prediction> predictions);

}  // namespace spdkfac
