// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/calibration.h"

#include <cmath>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "calibrate/emulated_world.h"
#include "spdkfac/comm/rank_values.h"
#include "spdkfac/plan/cluster_file.h"

namespace spdkfac {
namespace {

calibrate::CalibrationOptions tiny() {
  calibrate::CalibrationOptions options = calibrate::quick_sizes(c10::kCPU);
  options.name = "tiny";
  options.max_elements = 1 << 16;
  options.max_dim = 256;
  options.dim_ratio = std::sqrt(2.0);
  options.repetitions = 2;
  return options;
}

// One calibration of the ranks of the test, looked at from several sides.
const calibrate::Calibration& tiny_calibration() {
  static const calibrate::Calibration result =
      calibrate::calibrate(*support::world(), c10::kCPU, tiny());
  return result;
}

TEST(Calibrate, AllRanksEndWithTheSameFile) {
  const auto world = support::world();
  const calibrate::Calibration& calibration = tiny_calibration();
  for (const std::string& text : comm::texts_of_ranks(*world, c10::kCPU, calibration.text)) {
    EXPECT_EQ(text, calibration.text);
  }
  EXPECT_EQ(to_json(calibration.costs).dump(1) + "\n", calibration.text);
  const CostModel read = parse_cluster(parse_json(calibration.text, "file"), "file");
  EXPECT_EQ(to_json(read), to_json(calibration.costs));
}

TEST(Calibrate, SaysWhatItWasMeasuredOn) {
  const auto world = support::world();
  const CostModel& costs = tiny_calibration().costs;
  EXPECT_EQ(costs.name, "tiny");
  EXPECT_EQ(costs.world, world->size());
  EXPECT_EQ(costs.provenance.at("ranks"), std::to_string(world->size()));
  EXPECT_EQ(costs.provenance.at("hosts"), "1");
  EXPECT_EQ(costs.provenance.at("threads"), std::to_string(at::get_num_threads()));
  EXPECT_EQ(costs.provenance.at("repetitions"), "2");
  for (const char* field : {"date", "device", "versions", "inverse"}) {
    EXPECT_FALSE(costs.provenance.at(field).empty()) << field;
  }
  EXPECT_NE(costs.source.find("Measured by spdkfac calibrate"), std::string::npos);
}

TEST(Calibrate, OneRankHasNoCollectives) {
  const auto world = support::world();
  const calibrate::Calibration& calibration = tiny_calibration();
  const bool alone = world->size() == 1;
  EXPECT_EQ(calibration.collectives.empty(), alone);
  EXPECT_EQ(calibration.costs.all_reduce.time(1 << 20) == Seconds(0), alone);
  if (alone) {
    EXPECT_EQ(calibration.costs.overheads.compute_rate_under_communication, 1);
    EXPECT_EQ(calibration.costs.overheads.communication_rate_under_computation, 1);
  }
}

TEST(Calibrate, TellsHowLongAndThenEverySample) {
  const auto world = support::world();
  Seconds estimate;
  std::size_t expected = 0;
  std::size_t samples = 0;
  static_cast<void>(calibrate::calibrate(*world, c10::kCPU, tiny(),
                                         {.begin =
                                              [&](Seconds seconds, std::size_t count) {
                                                estimate = seconds;
                                                expected = count;
                                              },
                                          .advance = [&] { ++samples; }}));
  EXPECT_GT(estimate, Seconds(0));
  EXPECT_GT(expected, 0);
  EXPECT_EQ(samples, expected);
}

TEST(Calibrate, TheInverseNeverBecomesCheaper) {
  const CostModel& costs = tiny_calibration().costs;
  for (std::int64_t dim = 64; dim < 8192; dim += 64) {
    EXPECT_LE(costs.inverse_time(dim), costs.inverse_time(dim + 64)) << dim;
  }
}

TEST(Calibrate, FindsAnEmulatedLinkThroughAllStages) {
  EmulatedLink link = support::emulated_world();
  if (link.size() == 1) GTEST_SKIP() << "one rank has no collectives";
  const CostModel costs = calibrate::calibrate(link, c10::kCPU, tiny()).costs;
  constexpr std::int64_t kElements = 1 << 16;
  const double expected = support::kAlpha + support::kBeta * kElements;
  // Never faster than the link; a busy machine may be much slower.
  EXPECT_GE(costs.all_reduce.time(kElements).value(), 0.9 * expected);
  EXPECT_LE(costs.all_reduce.time(kElements).value(), 2.5 * expected);
  EXPECT_GE(costs.broadcast.time(kElements).value(), 0.9 * expected / 2);
  EXPECT_LE(costs.broadcast.time(kElements).value(), 2.5 * expected / 2);
}

}  // namespace
}  // namespace spdkfac
