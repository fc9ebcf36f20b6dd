// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/log.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"

namespace spdkfac {
namespace {

constexpr std::array<std::pair<std::string_view, spdlog::level::level_enum>, 6> kLevels = {{
    {"trace", spdlog::level::trace},
    {"debug", spdlog::level::debug},
    {"info", spdlog::level::info},
    {"warning", spdlog::level::warn},
    {"error", spdlog::level::err},
    {"off", spdlog::level::off},
}};

spdlog::level::level_enum parse_level(const std::string& name) {
  for (const auto& [known, level] : kLevels) {
    if (name == known) return level;
  }
  throw ConfigError(fmt::format(
      "log: unknown level \"{}\"; use trace, debug, info, warning, error or off", name));
}

}  // namespace

std::shared_ptr<spdlog::logger> make_logger(const LogOptions& options) {
  SPDKFAC_CHECK(options.rank >= 0 && options.rank < options.world,
                fmt::format("rank={}, world={}", options.rank, options.world));
  spdlog::level::level_enum level = parse_level(options.level);
  if (options.rank != 0) level = std::max(level, spdlog::level::warn);

  auto logger = std::make_shared<spdlog::logger>(
      "spdkfac", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_level(level);
  const std::string rank =
      options.world > 1 ? fmt::format("[rank {}/{}] ", options.rank, options.world) : "";
  logger->set_pattern(fmt::format("%H:%M:%S.%e {}%^%l%$: %v", rank));
  return logger;
}

}  // namespace spdkfac
