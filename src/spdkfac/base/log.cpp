// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/log.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"

namespace spdkfac {
namespace {

constexpr std::array<std::string_view, 6> kLevelNames = {"trace",   "debug", "info",
                                                         "warning", "error", "off"};

LogLevel parse_level(const std::string& name) {
  const auto* const found = std::find(kLevelNames.begin(), kLevelNames.end(), name);
  if (found == kLevelNames.end()) {
    throw ConfigError(fmt::format(
        "log: unknown level \"{}\"; use trace, debug, info, warning, error or off", name));
  }
  return static_cast<LogLevel>(found - kLevelNames.begin());
}

std::string time_of_day() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = now - std::chrono::system_clock::from_time_t(seconds);
  std::tm local = {};
  localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", local.tm_hour, local.tm_min, local.tm_sec,
                     std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

}  // namespace

Logger::Logger(LogOptions options)
    : options_(std::move(options)), level_(parse_level(options_.level)) {
  SPDKFAC_CHECK(options_.rank >= 0 && options_.rank < options_.world,
                fmt::format("rank={}, world={}", options_.rank, options_.world));
  if (options_.rank != 0) level_ = std::max(level_, LogLevel::kWarning);
}

void Logger::write(LogLevel level, const std::string& message) const {
  if (level < level_) return;
  if (options_.sink) return options_.sink(level, message);
  const std::string rank =
      options_.world > 1 ? fmt::format("[rank {}/{}] ", options_.rank, options_.world) : "";
  // One call, so that lines of several threads do not mix.
  const std::string line = fmt::format("{} {}{}: {}\n", time_of_day(), rank,
                                       kLevelNames.at(static_cast<std::size_t>(level)), message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::shared_ptr<Logger> make_logger(LogOptions options) {
  return std::make_shared<Logger>(std::move(options));
}

}  // namespace spdkfac
