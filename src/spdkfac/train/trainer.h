// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "spdkfac/base/json.h"
#include "spdkfac/train/train_listener.h"
#include "spdkfac/train/train_options.h"

namespace spdkfac::train {

struct TrainResult {
  int signal = 0;  // that ended the run early
  bool first_rank = true;
  Json summary;  // docs/training.md
};

// Trains as `spdkfac train` does: writes what the options ask for, tells the listener on the first
// rank how it goes, and returns the summary.
TrainResult train(const TrainOptions& options, TrainListener& listener);

}  // namespace spdkfac::train
