// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace spdkfac::train {

// How far a run is, for the bar.
struct TrainProgress {
  std::int64_t epoch = 0;  // from 1
  std::int64_t batch = 0;  // done in this epoch
  std::int64_t batches = 0;
  std::int64_t steps_left = 0;  // of the run
  double steps_per_second = 0;
  double images_per_second = 0;
  double loss = 0;  // mean of the epoch so far
};

// One line of the table.
struct TrainRow {
  double epochs = 0;
  std::int64_t step = 0;
  double train_loss = 0;
  double test_loss = 0;
  double test_accuracy = 0;  // 0 to 1
  double seconds = 0;
  double images_per_second = 0;
};

// Hears what a run has to tell people; the first rank's is the only one that is called.
class TrainListener {
 public:
  virtual ~TrainListener() = default;

  virtual void line(const std::string& text) = 0;  // what the run is about
  virtual void warning(const std::string& text) = 0;
  virtual void row(const TrainRow& row) = 0;
  // Whether it is time to show progress; asking costs nothing, measuring the loss may.
  virtual bool progress_due() const = 0;
  virtual void progress(const TrainProgress& progress) = 0;
};

}  // namespace spdkfac::train
