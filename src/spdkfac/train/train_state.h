// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "spdkfac/train/checkpoint_folder.h"
#include "spdkfac/train/train_options.h"
#include "spdkfac/train/training.h"

namespace spdkfac::train {

// Where a run stands. Epoch and batch follow from the step.
struct TrainPosition {
  std::int64_t step = 0;
  double seconds = 0;  // spent training
  // Of the epoch so far.
  double loss_sum = 0;  // over its examples
  std::int64_t examples = 0;
  double epoch_seconds = 0;
};

// Everything that the next steps depend on, as the content of a checkpoint: the run that loads it
// goes on as if it had never stopped, on the CPU bit for bit. All ranks call it and get the same.
std::string save_state(Training& training, const TrainPosition& position, const Settings& settings);

// Into a training made with the same settings; others are a ConfigError that names them. Content
// that is no such state is an Error.
TrainPosition load_state(const std::string& content, const std::string& where, Training& training,
                         const Settings& settings);

// Loads the newest checkpoint that can be read; damaged ones are set aside and told to `warn`.
// Nothing when the folder has none; a ConfigError when it has some and none can be read.
struct Resumed {
  TrainPosition position;
  std::string file;
  std::string content;
};
std::optional<Resumed> load_newest(const CheckpointFolder& folder, Training& training,
                                   const Settings& settings,
                                   const std::function<void(const std::string&)>& warn);

}  // namespace spdkfac::train
