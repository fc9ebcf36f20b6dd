// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "spdkfac/base/json.h"
#include "spdkfac/train/train_listener.h"
#include "spdkfac/train/train_options.h"
#include "spdkfac/train/train_state.h"
#include "spdkfac/train/training.h"

namespace spdkfac::train {

// A moment of a run, for the table, the metrics file and the summary.
struct TrainStatus {
  const TrainOptions& options;
  TrainPosition position;
  std::int64_t steps_per_epoch = 1;
  int world = 1;
  double learning_rate = 0;  // of the last update
  std::optional<Evaluation> evaluation = std::nullopt;
  std::optional<KfacCounters> counters = std::nullopt;

  double epochs() const;
  double train_loss() const;
  double images_per_second() const;
};

TrainRow row_of(const TrainStatus& status);
// Lines of the metrics file; docs/training.md has the fields.
Json epoch_json(const TrainStatus& status);
Json eval_json(const TrainStatus& status);
// The object of --json. `ended_by` is end, target, SIGINT or SIGTERM.
Json summary_json(const TrainStatus& status, const Training& training, const std::string& ended_by);

// What is trained, on what and how: two lines.
std::string header_text(const TrainOptions& options, const Training& training,
                        std::int64_t total_steps);
// What went wrong in numbers, or nothing.
std::string trouble_text(const KfacCounters& counters);

}  // namespace spdkfac::train
