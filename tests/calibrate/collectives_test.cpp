// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/collectives.h"

#include <gtest/gtest.h>

#include "calibrate/emulated_world.h"
#include "spdkfac/calibrate/fits.h"
#include "spdkfac/comm/recording_communicator.h"

namespace spdkfac {
namespace {

// What a sleeping thread of a busy machine wakes up too late by, against 10 ms and more.
constexpr double kTolerance = 0.2;

TEST(CollectiveStage, FindsTheLinkThatIsThere) {
  EmulatedLink link = support::emulated_world();
  const Bench bench{link, c10::kCPU};
  const CollectiveStage stage(bench, {1 << 10, 1 << 12, 1 << 13, 1 << 14}, 5);
  const auto measured = stage.measure();
  ASSERT_EQ(measured.size(), kCollectives.size());
  for (std::size_t i = 0; i < measured.size(); ++i) {
    EXPECT_EQ(measured[i].operation, kCollectives[i]);
    const double share = measured[i].operation == Operation::kAllReduce ? 1 : 0.5;
    const CollectiveFits fits = fit_collective_times(measured[i]);
    const double alpha = share * support::kAlpha;
    const double beta = share * support::kBeta;
    EXPECT_NEAR(fits.affine.model.alpha().value(), alpha, kTolerance * alpha)
        << operation_name(measured[i].operation);
    EXPECT_NEAR(fits.affine.model.beta().value(), beta, kTolerance * beta)
        << operation_name(measured[i].operation);
    EXPECT_FALSE(fits.takes_table()) << operation_name(measured[i].operation);
  }
}

TEST(CollectiveStage, EstimatesBeforeItMeasures) {
  EmulatedLink link = support::emulated_world();
  const Bench bench{link, c10::kCPU};
  const std::vector<std::int64_t> sizes{1 << 10, 1 << 13, 1 << 16};
  const CollectiveStage stage(bench, sizes, 2);
  // Three rounds over an all-reduce and three halves, besides barriers.
  double round = 0;
  for (const std::int64_t size : sizes) {
    round += 2.5 * (support::kAlpha + support::kBeta * static_cast<double>(size));
  }
  EXPECT_GT(stage.estimate().value(), 0.9 * 3 * round);
  EXPECT_LT(stage.estimate().value(), 2.5 * 3 * round);
  EXPECT_EQ(stage.samples(), 3 * 4 * 3);
}

TEST(CollectiveStage, ABudgetLeavesOutTheLargestSizes) {
  EmulatedLink link = support::emulated_world();
  const Bench bench{link, c10::kCPU};
  const std::vector<std::int64_t> sizes{1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 20};
  // The largest message alone takes 4 s, the others together a tenth of that.
  const CollectiveStage stage(bench, sizes, 1, Seconds(6));
  EXPECT_EQ(stage.samples(), 4 * 4 * 2);
  const CollectiveStage fewest(bench, sizes, 1, Seconds(1e-6));
  EXPECT_EQ(fewest.samples(), 3 * 4 * 2);
}

TEST(CollectiveStage, OperationsAndSizesTakeTurns) {
  RecordingCommunicator recording(support::world());
  const Bench bench{recording, c10::kCPU};
  const CollectiveStage stage(bench, {1024, 4096, 8192}, 2);
  recording.clear();
  static_cast<void>(stage.measure());
  std::vector<RecordingCommunicator::Record> operations;
  for (const auto& record : recording.records()) {
    if (record.operation != Operation::kBarrier) operations.push_back(record);
  }
  ASSERT_EQ(operations.size(), stage.samples() + 1);  // and the exchange of the samples
  for (std::size_t i = 0; i + 1 < operations.size(); ++i) {
    EXPECT_EQ(operations[i].operation, kCollectives[i % 4]);
  }
  EXPECT_EQ(operations[4].elements, 4096);
  EXPECT_EQ(operations[8].elements, 8192);
  // The root of the next round is the next rank.
  EXPECT_EQ(operations[1].root, 0);
  EXPECT_EQ(operations[1 + 12].root, 1 % recording.size());
}

}  // namespace
}  // namespace spdkfac
