// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/collectives.h"

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "calibrate/emulated_world.h"
#include "spdkfac/calibrate/fits.h"
#include "spdkfac/comm/logged_communicator.h"

namespace spdkfac {
namespace {

// What a sleeping thread of a busy machine wakes up too late by, against 10 ms and more.
constexpr double kTolerance = 0.6;
// A machine with more work than cores may be late by more than that, but not every time.
constexpr int kAttempts = 3;

// What is wrong with the line fitted to the times of the emulated link; empty if nothing is.
std::string problem_with(const calibrate::CollectiveTimes& measured) {
  const double share = measured.operation == Operation::kAllReduce ? 1 : 0.5;
  const calibrate::CollectiveFits fits = calibrate::fit_collective_times(measured);
  const double alpha = fits.affine.model.alpha().value() / (share * support::kAlpha);
  const double beta = fits.affine.model.beta().value() / (share * support::kBeta);
  const bool good = std::abs(alpha - 1) < kTolerance && std::abs(beta - 1) < kTolerance;
  if (good && !fits.takes_table()) return "";
  return fmt::format("{}: {} of α, {} of β; ", operation_name(measured.operation), alpha, beta);
}

TEST(CollectiveStage, FindsTheLinkThatIsThere) {
  EmulatedLink link = support::emulated_world();
  const calibrate::Bench bench{link, c10::kCPU};
  const calibrate::CollectiveStage stage(bench, {1 << 10, 1 << 12, 1 << 13, 1 << 14}, 5);
  std::string problems;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto measured = stage.measure();
    ASSERT_EQ(measured.size(), calibrate::kCollectives.size());
    problems.clear();
    for (std::size_t i = 0; i < measured.size(); ++i) {
      EXPECT_EQ(measured[i].operation, calibrate::kCollectives[i]);
      problems += problem_with(measured[i]);
    }
    if (problems.empty()) break;  // on all ranks, for all hold the same times
  }
  EXPECT_EQ(problems, "");
}

TEST(CollectiveStage, EstimatesBeforeItMeasures) {
  EmulatedLink link = support::emulated_world();
  const calibrate::Bench bench{link, c10::kCPU};
  const std::vector<std::int64_t> sizes{1 << 10, 1 << 13, 1 << 16};
  const calibrate::CollectiveStage stage(bench, sizes, 2);
  // Three rounds over an all-reduce and two halves, besides barriers.
  double round = 0;
  for (const std::int64_t size : sizes) {
    round += 2 * (support::kAlpha + support::kBeta * static_cast<double>(size));
  }
  EXPECT_GT(stage.estimate().value(), 0.9 * 3 * round);
  EXPECT_LT(stage.estimate().value(), 2.5 * 3 * round);
  EXPECT_EQ(stage.samples(), 3 * 3 * 3);
}

TEST(CollectiveStage, ABudgetLeavesOutTheLargestSizes) {
  EmulatedLink link = support::emulated_world();
  const calibrate::Bench bench{link, c10::kCPU};
  const std::vector<std::int64_t> sizes{1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 20};
  // The largest message alone takes 4 s, the others together a tenth of that.
  const calibrate::CollectiveStage stage(bench, sizes, 1, Seconds(6));
  EXPECT_EQ(stage.samples(), 4 * 3 * 2);
  const calibrate::CollectiveStage fewest(bench, sizes, 1, Seconds(1e-6));
  EXPECT_EQ(fewest.samples(), 3 * 3 * 2);
}

// In each of three rounds every operation of every size, with the next rank as its root.
TEST(CollectiveStage, OperationsSizesAndRootsTakeTurns) {
  comm::LoggedCommunicator recording(support::world());
  const calibrate::Bench bench{recording, c10::kCPU};
  const calibrate::CollectiveStage stage(bench, {1024, 4096, 8192}, 2);
  recording.clear();
  static_cast<void>(stage.measure());
  std::vector<comm::LoggedCommunicator::Call> operations;
  for (const auto& record : recording.calls()) {
    if (record.operation != Operation::kBarrier) operations.push_back(record);
  }
  ASSERT_EQ(operations.size(), 3 * 9 + 1);  // and the exchange of the samples
  for (int round = 0; round < 3; ++round) {
    std::set<std::pair<Operation, std::int64_t>> seen;
    for (int i = 0; i < 9; ++i) {
      const auto& record = operations[static_cast<std::size_t>(9 * round + i)];
      seen.emplace(record.operation, record.elements);
      if (record.operation == Operation::kBroadcast || record.operation == Operation::kReduce) {
        EXPECT_EQ(record.root, round % recording.size());
      }
    }
    EXPECT_EQ(seen.size(), 9);
  }
}

}  // namespace
}  // namespace spdkfac
