// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/calibration_cache.h"

#include <cstdlib>
#include <optional>

#include <gtest/gtest.h>

#include "spdkfac/plan/cluster_file.h"
#include "support/temporary_folder.h"

namespace spdkfac {
namespace {

calibrate::Machine some_machine() {
  return {
      .hosts = {"a", "a", "b"}, .device = "some CPU", .threads = 2, .cores = 4, .transport = "X=1"};
}

TEST(Machine, SharesCoresWhereAHostHasMoreThreadsOfRanks) {
  calibrate::Machine machine = some_machine();  // two threads on each of two ranks on host a
  machine.cores = 4;
  EXPECT_FALSE(machine.shares_cores());
  machine.cores = 3;
  EXPECT_TRUE(machine.shares_cores());
}

CostModel some_costs() {
  CostModel costs;
  costs.name = "some";
  costs.world = 3;
  costs.all_reduce = {Seconds(1e-4), Seconds(1e-9)};
  costs.source = "a test";
  return costs;
}

// Sets a variable of the environment, or unsets it, until the end of the test.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Environment() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(CalibrationCache, KeyHasEverythingThatCostsDependOn) {
  const std::string key = calibrate::cache_key(some_machine(), 3, "mpi");
  EXPECT_EQ(calibrate::cache_key(some_machine(), 3, "mpi"), key);
  EXPECT_NE(calibrate::cache_key(some_machine(), 4, "mpi"), key);
  EXPECT_NE(calibrate::cache_key(some_machine(), 3, "nccl"), key);
  calibrate::Machine other = some_machine();
  other.hosts = {"a", "b", "b"};
  EXPECT_NE(calibrate::cache_key(other, 3, "mpi"), key);
  other = some_machine();
  other.device = "another CPU";
  EXPECT_NE(calibrate::cache_key(other, 3, "mpi"), key);
  other = some_machine();
  other.threads = 1;
  EXPECT_NE(calibrate::cache_key(other, 3, "mpi"), key);
  other = some_machine();
  other.transport = "X=2";
  EXPECT_NE(calibrate::cache_key(other, 3, "mpi"), key);
  EXPECT_NE(calibrate::cache_file("c", key),
            calibrate::cache_file("c", calibrate::cache_key(other, 3, "mpi")));
}

TEST(CalibrationCache, GivesBackWhatWasWritten) {
  const support::TemporaryFolder folder;
  const std::string key = calibrate::cache_key(some_machine(), 3, "mpi");
  const auto file = calibrate::cache_file(folder / "new" / "deep", key);
  std::string warning;
  EXPECT_EQ(calibrate::read_cache(file, key, warning), "");
  calibrate::write_cache(file, key, some_costs(), warning);
  EXPECT_EQ(warning, "");
  const CostModel read =
      parse_cluster(parse_json(calibrate::read_cache(file, key, warning), "cache"), "cache");
  EXPECT_EQ(warning, "");
  EXPECT_EQ(read.name, "some");
  EXPECT_EQ(read.all_reduce.time(1000), some_costs().all_reduce.time(1000));
}

TEST(CalibrationCache, WhatCannotBeUsedIsAWarning) {
  const support::TemporaryFolder folder;
  const auto read = [&](const std::string& content, const std::string& key) {
    folder.write("c.json", content);
    std::string warning;
    EXPECT_EQ(calibrate::read_cache(folder / "c.json", key, warning), "");
    return warning;
  };
  for (const char* content : {"", "{", "[]", "{\"format\": \"spdkfac.plan/1\"}", "\xff\xfe"}) {
    EXPECT_NE(read(content, "key").find("measuring again"), std::string::npos) << content;
  }
  // A good file, but of another key.
  const std::string warning = read(to_json(some_costs()).dump(), "key");
  EXPECT_NE(warning.find("was measured for another setting"), std::string::npos);
  std::string of_folder;
  EXPECT_EQ(calibrate::read_cache(folder.path(), "key", of_folder), "");
  EXPECT_NE(of_folder.find("measuring again"), std::string::npos);
}

TEST(CalibrationCache, AFolderThatCannotBeWrittenIsAWarning) {
  const support::TemporaryFolder folder;
  folder.write("file", "");
  std::string warning;
  calibrate::write_cache(folder / "file" / "c.json", "key", some_costs(), warning);
  EXPECT_NE(warning.find("cannot be kept"), std::string::npos);
}

TEST(CalibrationCache, FolderFollowsTheEnvironment) {
  {
    const Environment cache("XDG_CACHE_HOME", "/cache");
    EXPECT_EQ(calibrate::default_cache_folder(), "/cache/spdkfac");
  }
  const Environment relative("XDG_CACHE_HOME", "cache");
  {
    const Environment home("HOME", "/home/me");
    EXPECT_EQ(calibrate::default_cache_folder(), "/home/me/.cache/spdkfac");
  }
  const Environment no_home("HOME", nullptr);
  EXPECT_EQ(calibrate::default_cache_folder(), "");
}

}  // namespace
}  // namespace spdkfac
