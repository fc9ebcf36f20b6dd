// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "spdkfac/base/json.h"
#include "spdkfac/cli/train_options.h"

namespace spdkfac::cli {

struct TrainResult {
  int signal = 0;  // that ended the run early
  bool first_rank = true;
  Json summary;  // docs/training.md
};

// Runs `spdkfac train`: all that is printed, written and saved, except the summary.
TrainResult train(const TrainOptions& options);

}  // namespace spdkfac::cli
