// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/log.h"

#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"

namespace spdkfac {
namespace {

// What a logger writes to stderr for one message per level, without the time of day.
std::string output(const LogOptions& options) {
  testing::internal::CaptureStderr();
  {
    const auto logger = make_logger(options);
    logger->write(LogLevel::kTrace, "t");
    logger->write(LogLevel::kDebug, "d");
    logger->info("i 1");
    logger->warn("w");
    logger->write(LogLevel::kError, "e");
  }
  std::istringstream lines(testing::internal::GetCapturedStderr());
  constexpr std::string_view kTime = "hh:mm:ss.mmm ";
  std::string result;
  for (std::string line; std::getline(lines, line);) result += line.substr(kTime.size()) + "\n";
  return result;
}

TEST(Logger, WritesWarningsAndErrorsByDefault) { EXPECT_EQ(output({}), "warning: w\nerror: e\n"); }

TEST(Logger, WritesFromItsLevelUpwards) {
  EXPECT_EQ(output({.rank = 0, .world = 1, .level = "trace"}),
            "trace: t\ndebug: d\ninfo: i 1\nwarning: w\nerror: e\n");
  EXPECT_EQ(output({.rank = 0, .world = 1, .level = "debug"}),
            "debug: d\ninfo: i 1\nwarning: w\nerror: e\n");
  EXPECT_EQ(output({.rank = 0, .world = 1, .level = "info"}), "info: i 1\nwarning: w\nerror: e\n");
  EXPECT_EQ(output({.rank = 0, .world = 1, .level = "error"}), "error: e\n");
  EXPECT_EQ(output({.rank = 0, .world = 1, .level = "off"}), "");
}

TEST(Logger, NamesItsRankWhenThereAreSeveral) {
  EXPECT_EQ(output({.rank = 0, .world = 4, .level = "info"}),
            "[rank 0/4] info: i 1\n[rank 0/4] warning: w\n[rank 0/4] error: e\n");
}

TEST(Logger, OtherRanksSpeakFromWarningsUpwards) {
  EXPECT_EQ(output({.rank = 3, .world = 4, .level = "trace"}),
            "[rank 3/4] warning: w\n[rank 3/4] error: e\n");
  EXPECT_EQ(output({.rank = 3, .world = 4, .level = "error"}), "[rank 3/4] error: e\n");
  EXPECT_EQ(output({.rank = 3, .world = 4, .level = "off"}), "");
}

TEST(Logger, GivesItsSinkTheMessagesFromItsLevelUpwards) {
  std::vector<std::pair<LogLevel, std::string>> got;
  const auto logger = make_logger({.rank = 1,
                                   .world = 2,
                                   .level = "info",
                                   .sink = [&](LogLevel level, const std::string& message) {
                                     got.emplace_back(level, message);
                                   }});
  logger->info("i");
  logger->warn("w");
  EXPECT_EQ(got, (std::vector<std::pair<LogLevel, std::string>>{{LogLevel::kWarning, "w"}}));
}

TEST(Logger, WritesTheTimeOfDayFirst) {
  testing::internal::CaptureStderr();
  make_logger({})->warn("w");
  EXPECT_TRUE(
      std::regex_match(testing::internal::GetCapturedStderr(),
                       std::regex("[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{3} warning: w\n")));
}

TEST(Logger, RefusesAnUnknownLevel) {
  try {
    make_logger({.rank = 0, .world = 1, .level = "loud"});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "log: unknown level \"loud\"; use trace, debug, info, warning, error or off");
  }
}

TEST(Logger, RefusesARankOutsideTheWorld) {
  EXPECT_THROW(make_logger({.rank = 4, .world = 4, .level = "info"}), InternalError);
  EXPECT_THROW(make_logger({.rank = -1, .world = 4, .level = "info"}), InternalError);
}

}  // namespace
}  // namespace spdkfac
