// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/computation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spdkfac/calibrate/fits.h"
#include "support/world.h"

namespace spdkfac {
namespace {

TEST(ComputeStage, MeasuresEveryPart) {
  const auto world = support::world();
  const calibrate::Bench bench{*world, c10::kCPU};
  const calibrate::ComputeStage stage(bench, {64, 96, 128, 192, 256}, 1, 3);
  EXPECT_GT(stage.estimate(), Seconds(0));
  const calibrate::ComputeTimes times = stage.measure();
  ASSERT_EQ(times.inverse.size(), 5);
  EXPECT_EQ(times.inverse.front().size, 64);
  EXPECT_EQ(times.inverse.back().size, 256);
  // From a very slow machine to a very fast one.
  for (const FlopsPerSecond rate :
       {times.rates.forward, times.rates.factor, times.rates.precondition}) {
    EXPECT_GT(rate.value(), 1e7);
    EXPECT_LT(rate.value(), 1e15);
  }
  for (const Seconds overhead : {times.overheads.host_per_tensor, times.overheads.pack_per_element,
                                 times.overheads.unpack_per_element}) {
    EXPECT_GT(overhead.value(), 0);
    EXPECT_LT(overhead.value(), 0.1);
  }
  EXPECT_LT(times.overheads.pack_per_element.value(), 1e-5);
}

TEST(ComputeStage, TakesLongerSamplesWhereRanksShareCores) {
  const auto world = support::world();
  calibrate::Bench bench{*world, c10::kCPU};
  const std::vector<std::int64_t> dims{16, 32, 48, 64, 96};
  bench.shared_cores = true;
  // Each of five inversions, and of everything else, takes 40 ms in each of two rounds.
  EXPECT_GT(calibrate::ComputeStage(bench, dims, 1, 1).estimate(), Seconds(5 * 2 * 40e-3));
}

TEST(ComputeStage, ABudgetLeavesOutTheLargestInversions) {
  const auto world = support::world();
  const calibrate::Bench bench{*world, c10::kCPU};
  const std::vector<std::int64_t> dims{64, 96, 128, 192, 256, 1024, 1536};
  const calibrate::ComputeStage all(bench, dims, 1, 1);
  const calibrate::ComputeStage fewest(bench, dims, 1, 1, Seconds(1e-6));
  EXPECT_EQ(all.samples() - fewest.samples(), 2 * 2);
}

TEST(ComputeTasks, LeaveTheGeneratorOfTorchAlone) {
  const auto world = support::world();
  at::manual_seed(5);
  const at::Tensor expected = at::randn({3});
  at::manual_seed(5);
  for (const calibrate::ComputeTask& task : calibrate::compute_tasks(*world, c10::kCPU, {64}, 1)) {
    task.task.run();
    if (task.task.finish) task.task.finish();
  }
  EXPECT_TRUE(at::equal(at::randn({3}), expected));
}

// 2·d_in·d_g·positions: 64 channels, 3x3, 56x56. Its factor has 2·(64·9)²·56² flops.
TEST(ComputeTasks, CountFlopsAsLayerTablesDo) {
  const auto world = support::world();
  const auto tasks = calibrate::compute_tasks(*world, c10::kCPU, {64}, 2);
  EXPECT_EQ(tasks[1].part, calibrate::Part::kForward);
  EXPECT_EQ(tasks[1].work, 2.0 * 2 * 576 * 64 * 3136);
  EXPECT_EQ(tasks[2].part, calibrate::Part::kFactor);
  EXPECT_EQ(tasks[2].work, 2.0 * 2 * 576 * 576 * 3136);
  EXPECT_EQ(tasks[3].part, calibrate::Part::kPrecondition);
  EXPECT_EQ(tasks[3].work, 2.0 * 576 * 64 * (576 + 64));
}

}  // namespace
}  // namespace spdkfac
