// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "spdkfac/train/checkpoint_folder.h"
#include "spdkfac/train/optimizer_state.h"
#include "spdkfac/train/train_options.h"
#include "spdkfac/train/training.h"

namespace spdkfac::train {

// Where a run stands. The data of an epoch are counted in examples, so that another number of ranks
// can go on.
struct TrainPosition {
  std::int64_t step = 0;
  std::int64_t epoch = 0;  // from 0
  double seconds = 0;      // spent training
  // Of the epoch so far.
  std::int64_t examples = 0;  // that all ranks have taken
  std::int64_t epoch_steps = 0;
  double loss_sum = 0;  // over this rank's examples
  double epoch_seconds = 0;
};

// The names of what a checkpoint holds; docs/formats.md.
constexpr const char* kCheckpointFormat = "spdkfac.checkpoint/2";
NamedTensors model_parameters(const Training& training);
NamedTensors model_tensors(const Training& training);  // with buffers

// Writes everything that the next steps depend on as the checkpoint of the step: the run that loads
// it continues as if it had never stopped, on the CPU bit for bit. All ranks call it; the first one
// has the folder and writes, tensor by tensor, so that no rank needs more memory than in a step.
void save_state(const CheckpointFolder* folder, Training& training, const TrainPosition& position,
                const Settings& settings);

struct Resumed {
  TrainPosition position;
  std::string file;
};
// Loads the newest checkpoint whose size and checksum are right, into a training made with the same
// settings. Damaged ones are set aside and told to `warn`. Nothing when there is none; a
// ConfigError when there are some and all are damaged. Any other error leaves files and training as
// they are. All ranks call it; the first one has the folder.
std::optional<Resumed> load_newest(const CheckpointFolder* folder, Training& training,
                                   const Settings& settings,
                                   const std::function<void(const std::string&)>& warn);

}  // namespace spdkfac::train
