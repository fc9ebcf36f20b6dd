// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/train_output.h"

#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "spdkfac/cli/output.h"
#include "spdkfac/report/table.h"

namespace spdkfac::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kBarWidth = 24;

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e7) return "?";
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

TrainOutput::TrainOutput(bool json) : json_(json), terminal_(isatty(STDERR_FILENO) == 1) {}

TrainOutput::~TrainOutput() { clear_bar(); }

void TrainOutput::clear_bar() {
  if (bar_shown_) std::fputs("\r\033[K", stderr);
  bar_shown_ = false;
}

void TrainOutput::write(const std::string& text) {
  clear_bar();
  if (json_) {
    std::fputs(text.c_str(), stderr);
  } else {
    print(text);
  }
}

void TrainOutput::line(const std::string& text) { write(text + "\n"); }

void TrainOutput::warning(const std::string& text) {
  clear_bar();
  std::fputs(fmt::format("spdkfac: warning: {}\n", text).c_str(), stderr);
}

void TrainOutput::row(const train::TrainRow& row) {
  if (!title_shown_) {
    line(" epoch    step  train loss  test loss  accuracy %    seconds  images/s");
    line("──────  ──────  ──────────  ─────────  ──────────  ─────────  ────────");
    title_shown_ = true;
  }
  line(fmt::format("{:6.2f}  {:6}  {:10.4f}  {:9.4f}  {:10.2f}  {:9.1f}  {:8.0f}", row.epochs,
                   row.step, row.train_loss, row.test_loss, 100 * row.test_accuracy, row.seconds,
                   row.images_per_second));
}

bool TrainOutput::progress_due() const {
  return Clock::now() - last_progress_ >= (terminal_ ? Clock::duration(200ms) : 10s);
}

void TrainOutput::progress(const train::TrainProgress& p) {
  last_progress_ = Clock::now();
  const std::string numbers = fmt::format(
      "{}/{}  loss {:.4f}  {:.0f} images/s  {} left", p.batch, p.batches, p.loss,
      p.images_per_second, duration_text(static_cast<double>(p.steps_left) / p.steps_per_second));
  if (!terminal_) {
    std::fputs(fmt::format("epoch {}: {}\n", p.epoch, numbers).c_str(), stderr);
    return;
  }
  const std::string blocks =
      report::bar(static_cast<double>(p.batch) / static_cast<double>(p.batches), kBarWidth);
  const std::string blanks(kBarWidth - report::display_width(blocks), ' ');
  std::fputs(fmt::format("\r\033[Kepoch {} [{}{}] {}", p.epoch, blocks, blanks, numbers).c_str(),
             stderr);
  std::fflush(stderr);
  bar_shown_ = true;
}

}  // namespace spdkfac::cli
