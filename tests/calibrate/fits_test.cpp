// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/fits.h"

#include <functional>
#include <variant>

#include <gtest/gtest.h>

#include "spdkfac/plan/cluster_file.h"

namespace spdkfac {
namespace {

calibrate::CollectiveTimes times_of(const std::function<double(double)>& seconds) {
  calibrate::CollectiveTimes times;
  times.operation = Operation::kBroadcast;
  for (double size = 1024; size < 1e8; size *= 4) {
    times.times.push_back({size, Seconds(seconds(size))});
  }
  return times;
}

TEST(CollectiveFits, AStraightLineStaysOne) {
  const auto fits =
      calibrate::fit_collective_times(times_of([](double m) { return 1e-4 + 1e-9 * m; }));
  EXPECT_FALSE(fits.takes_table());
  EXPECT_NEAR(fits.chosen().alpha().value(), 1e-4, 1e-12);
  EXPECT_FALSE(fits.chosen().table());
}

// Ten times slower from 64 K on, as where a library changes its algorithm.
TEST(CollectiveFits, AStepNeedsATable) {
  const auto fits = calibrate::fit_collective_times(
      times_of([](double m) { return m < 65536 ? 1e-4 + 1e-9 * m : 1e-3 + 1e-8 * m; }));
  EXPECT_TRUE(fits.takes_table());
  ASSERT_TRUE(fits.chosen().table());
  EXPECT_NEAR(fits.chosen().time(1024).value(), 1e-4 + 1e-9 * 1024, 1e-12);
}

std::vector<plan::Measurement> inversions(const std::function<double(double)>& seconds) {
  std::vector<plan::Measurement> times;
  for (const double dim : {64, 128, 256, 512, 1024, 2048}) {
    times.push_back({dim, Seconds(seconds(dim))});
  }
  return times;
}

TEST(InverseFits, ACubicStaysOne) {
  const auto fits =
      calibrate::fit_inverse_times(inversions([](double d) { return 1e-5 + 1e-11 * d * d * d; }));
  EXPECT_FALSE(fits.takes_table());
  EXPECT_TRUE(std::holds_alternative<CubicInverse>(fits.chosen()));
}

// Where nothing shows the cube yet, a table that goes on with it is the safer guess: 8 times as
// long for twice the dimension.
TEST(InverseFits, WithoutACubeTheTableGoesOnWithOne) {
  const auto fits = calibrate::fit_inverse_times(inversions([](double d) { return 1e-7 * d; }));
  EXPECT_TRUE(fits.takes_table());
  const InverseCost chosen = fits.chosen();
  ASSERT_TRUE(std::holds_alternative<CostTable>(chosen));
  EXPECT_NEAR(inverse_time(chosen, 2048).value(), 2048e-7, 1e-12);
  EXPECT_NEAR(inverse_time(chosen, 4096).value(), 8 * 2048e-7, 1e-9);
  EXPECT_NEAR(inverse_time(chosen, 16384).value(), 512 * 2048e-7, 1e-6);
}

// A cluster file holds no time above a day.
TEST(InverseFits, ASlowMachineStillGivesAFile) {
  const auto fits = calibrate::fit_inverse_times(inversions([](double d) { return 1e-2 * d; }));
  CostModel costs;
  costs.name = "slow";
  costs.inverse = fits.chosen();
  EXPECT_NO_THROW(static_cast<void>(parse_cluster(to_json(costs), "slow")));
}

TEST(InverseFits, TheTableNeverFalls) {
  const auto fits = calibrate::fit_inverse_times(
      inversions([](double d) { return d == 512 ? 1e-6 : 1e-9 * d * d; }));
  ASSERT_TRUE(fits.takes_table());
  const auto points = std::get<CostTable>(fits.chosen()).points();
  for (std::size_t i = 1; i < points.size(); ++i) {
    EXPECT_GE(points[i].second, points[i - 1].second);
  }
}

}  // namespace
}  // namespace spdkfac
