// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "spdkfac/base/json.h"
#include "spdkfac/sim/predict.h"

namespace spdkfac::report {

// The words for a category in tables: FF&BP, GradComm, … as in the paper.
std::string_view category_title(Category category);

// {"format":"spdkfac.prediction/2", …}
Json to_json(const Prediction& prediction);
// What to_json() gave; what it does not hold, such as plan and trace, is empty, and of the inverse
// loads there are only the smallest and the largest.
Prediction parse_prediction(const Json& document, const std::string& where);

// "resnet50, batch 32, on 64 ranks of paper-64x2080ti"
std::string heading(const Prediction& prediction);
// What the parts of a prediction that are of one step are of: a full step, or the slowest one.
std::string_view described_step(const RefreshIntervals& intervals);
// The least and the most that a rank inverts in that step.
std::pair<Seconds, Seconds> inverse_range(const Prediction& prediction);

// One prediction for people: parts with bars, traffic, loads, utilisation.
std::string describe(const Prediction& prediction);

// Many predictions of one model, a line for each algorithm, with speed-ups over d-kfac and mpd-kfac
// where they are among them; different intervals stand side by side, methods that are for forecasts
// only in a table of their own. Each column is of full steps or an average of a refresh cycle. A
// wide table has all columns.
std::string comparison_text(std::span<const Prediction> predictions, bool wide = false);
// All fields, one line a prediction; times in seconds with nine decimals.
std::string comparison_csv(std::span<const Prediction> predictions);

// Iteration times by number of workers (rows) and algorithm (columns).
std::string scaling_text(std::span<const Prediction> predictions);

}  // namespace spdkfac::report
