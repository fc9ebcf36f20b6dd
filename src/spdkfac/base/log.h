// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace spdkfac {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

struct LogOptions {
  int rank = 0;
  int world = 1;
  // trace, debug, info, warning, error or off.
  std::string level = "warning";
  // Takes each message that is not below the level. Empty: lines on stderr with the time of day
  // and, of several ranks, `[rank r/P]`.
  std::function<void(LogLevel, const std::string& message)> sink = {};
};

// Thread-safe if its sink is, as stderr is.
class Logger {
 public:
  explicit Logger(LogOptions options);

  void info(const std::string& message) const { write(LogLevel::kInfo, message); }
  void warn(const std::string& message) const { write(LogLevel::kWarning, message); }
  void write(LogLevel level, const std::string& message) const;

 private:
  LogOptions options_;
  LogLevel level_;
};

// Ranks other than 0 speak only from warnings upwards, so that a message is not printed P times. A
// bad level is a ConfigError.
std::shared_ptr<Logger> make_logger(LogOptions options);

}  // namespace spdkfac
