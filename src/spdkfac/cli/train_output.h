// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "spdkfac/base/json.h"
#include "spdkfac/cli/train_options.h"

namespace spdkfac::cli {

// A file that JSON lines are appended to, each as soon as it is there.
class MetricsFile {
 public:
  // Empty: no file. One that cannot be written is a ConfigError.
  explicit MetricsFile(const std::string& path);
  void append(const Json& line) const;

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

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

// What a run tells people: a table on stdout (on stderr when stdout is for JSON), and on stderr a
// bar when that is a terminal, otherwise a line every ten seconds.
class TrainOutput {
 public:
  // `silent`: another rank speaks for this one.
  explicit TrainOutput(bool json, bool silent = false);
  ~TrainOutput();
  TrainOutput(const TrainOutput&) = delete;
  TrainOutput& operator=(const TrainOutput&) = delete;

  void line(const std::string& text);     // with what the run is about
  void warning(const std::string& text);  // to stderr
  void row(const TrainRow& row);
  // Whether it is time to show progress; asking costs nothing, measuring the loss may.
  bool progress_due() const;
  void progress(const TrainProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  void clear_bar();
  void write(const std::string& text);

  bool json_;
  bool silent_;
  bool terminal_;
  bool bar_shown_ = false;
  bool title_shown_ = false;
  Clock::time_point last_progress_ = Clock::now();
};

}  // namespace spdkfac::cli
