// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <spdlog/logger.h>

namespace spdkfac {

struct LogOptions {
  int rank = 0;
  int world = 1;
  // trace, debug, info, warning, error or off.
  std::string level = "warning";
};

// A logger to stderr whose lines carry `[rank r/P]` when there is more than one rank. Ranks other
// than 0 speak only from warnings upwards, so that a message is not printed P times.
// Not registered globally: pass it to what needs it. Thread-safe. A bad level is a ConfigError.
std::shared_ptr<spdlog::logger> make_logger(const LogOptions& options);

}  // namespace spdkfac
