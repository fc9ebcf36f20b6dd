// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "spdkfac/train/train_listener.h"

namespace spdkfac::cli {

// What a run tells people: a table on stdout (on stderr when stdout is for JSON), and on stderr a
// bar when that is a terminal, otherwise a line every ten seconds.
class TrainOutput : public train::TrainListener {
 public:
  explicit TrainOutput(bool json);
  ~TrainOutput() override;
  TrainOutput(const TrainOutput&) = delete;
  TrainOutput& operator=(const TrainOutput&) = delete;

  void line(const std::string& text) override;
  void warning(const std::string& text) override;  // to stderr
  void row(const train::TrainRow& row) override;
  bool progress_due() const override;
  void progress(const train::TrainProgress& progress) override;

 private:
  using Clock = std::chrono::steady_clock;
  void clear_bar();
  void write(const std::string& text);

  bool json_;
  bool terminal_;
  bool bar_shown_ = false;
  bool title_shown_ = false;
  Clock::time_point last_progress_ = Clock::now();
};

}  // namespace spdkfac::cli
