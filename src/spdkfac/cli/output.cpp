// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "spdkfac/base/error.h"
#include "spdkfac/report/table.h"

namespace spdkfac::cli {
namespace {

constexpr std::size_t kBarWidth = 30;

}  // namespace

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(fmt::format("output: cannot be written ({}); check the target of stdout",
                            std::strerror(errno)));
  }
}

void print_json(const Json& document) { print(document.dump(1) + "\n"); }

Progress::Progress(std::string what, std::size_t steps)
    : what_(std::move(what)), steps_(steps), shown_(steps > 1 && isatty(STDERR_FILENO) == 1) {
  draw();
}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::advance() {
  ++done_;
  draw();
}

void Progress::draw() const {
  if (!shown_) return;
  const std::string blocks =
      report::bar(static_cast<double>(done_) / static_cast<double>(steps_), kBarWidth);
  const std::string blanks(kBarWidth - report::display_width(blocks), ' ');
  std::fputs(fmt::format("\r{} [{}{}] {}/{}", what_, blocks, blanks, done_, steps_).c_str(),
             stderr);
  std::fflush(stderr);
}

}  // namespace spdkfac::cli
