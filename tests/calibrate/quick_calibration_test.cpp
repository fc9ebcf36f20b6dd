// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/quick_calibration.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "spdkfac/comm/rank_values.h"
#include "spdkfac/plan/cluster_file.h"
#include "support/temporary_folder.h"
#include "support/world.h"

namespace spdkfac {
namespace {

// Every rank has a folder of its own; only that of rank 0 counts.
class QuickCalibrationTest : public testing::Test {
 protected:
  calibrate::QuickCalibration calibrate(bool recalibrate = false,
                                        const std::string& transport = "") {
    calibrate::CalibrationOptions sizes = calibrate::quick_sizes(c10::kCPU);
    sizes.max_elements = 1 << 14;
    sizes.max_dim = 256;
    sizes.dim_ratio = 1.4;
    sizes.repetitions = 1;
    const calibrate::QuickCalibration result =
        calibrate::quick_calibration(*world_, c10::kCPU,
                                     {.recalibrate = recalibrate,
                                      .transport = transport,
                                      .cache_folder = folder_ / "cache",
                                      .sizes = sizes});
    // Whatever the cache does, the ranks agree.
    const std::string costs = to_json(result.costs).dump();
    for (const std::string& text : comm::texts_of_ranks(*world_, c10::kCPU, costs)) {
      EXPECT_EQ(text, costs);
    }
    const double measured = result.measured ? 1 : 0;
    EXPECT_EQ(comm::largest_of_ranks(*world_, c10::kCPU, {measured, -measured}),
              (std::vector<double>{measured, -measured}));
    EXPECT_EQ(result.file.empty(), !first());
    return result;
  }
  bool first() const { return world_->rank() == 0; }
  static Json without_key(const CostModel& costs) {
    Json json = to_json(costs);
    json["provenance"].erase("cache key");
    return json;
  }

  std::shared_ptr<Communicator> world_ = support::world();
  support::TemporaryFolder folder_;
};

TEST_F(QuickCalibrationTest, MeasuresOnceAndThenRemembers) {
  const calibrate::QuickCalibration measured = calibrate();
  EXPECT_TRUE(measured.measured);
  EXPECT_EQ(measured.warning, "");
  EXPECT_EQ(measured.costs.world, world_->size());
  const calibrate::QuickCalibration kept = calibrate();
  EXPECT_FALSE(kept.measured);
  EXPECT_EQ(kept.file, measured.file);
  EXPECT_EQ(without_key(kept.costs), without_key(measured.costs));
  if (first()) {
    EXPECT_EQ(read_cluster(kept.file).world, world_->size());
  }
}

TEST_F(QuickCalibrationTest, RecalibratesWhenAskedOrForAnotherTransport) {
  static_cast<void>(calibrate());
  EXPECT_TRUE(calibrate(/*recalibrate=*/true).measured);
  EXPECT_TRUE(calibrate(false, "another").measured);
  EXPECT_FALSE(calibrate(false, "another").measured);
}

TEST_F(QuickCalibrationTest, ADamagedCacheIsMeasuredAnewAndMended) {
  const calibrate::QuickCalibration before = calibrate();
  if (first()) std::ofstream(before.file) << "{\"format\": ";
  const calibrate::QuickCalibration again = calibrate();
  EXPECT_TRUE(again.measured);
  EXPECT_EQ(again.warning.empty(), !first());
  EXPECT_FALSE(calibrate().measured);
}

TEST_F(QuickCalibrationTest, ACacheThatCannotBeWrittenIsAWarning) {
  folder_.write("cache", "a file where the folder should be");
  const calibrate::QuickCalibration result = calibrate();
  EXPECT_TRUE(result.measured);
  EXPECT_EQ(result.warning.empty(), !first());
}

}  // namespace
}  // namespace spdkfac
