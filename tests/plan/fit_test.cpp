// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/fit.h"

#include <array>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/error.h"
#include "support/config_error.h"
#include "support/random.h"

namespace spdkfac {
namespace {

using support::config_error;
using support::Random;
using ::testing::HasSubstr;
using ::testing::Not;
using Points = std::vector<plan::Measurement>;

// Points of exact data recover coefficients up to the conditioning of the normal equations.
constexpr double kRecovered = 1e-6;
// Two ways to the same minimum, in double precision.
constexpr double kSameMinimum = 1e-6;

template <class Function>
Points points_at(const std::vector<double>& sizes, Function time) {
  Points points;
  for (const double size : sizes) points.push_back({size, Seconds(time(size))});
  return points;
}

// Multiplies every time by 1 ± spread.
Points noisy(Points points, double spread, std::uint32_t seed) {
  Random random(seed);
  for (plan::Measurement& point : points)
    point.time = point.time * (1 + random.real(-spread, spread));
  return points;
}

// Weighted line y = a + b·x through weighted means and covariances.
struct Line {
  double a = 0;
  double b = 0;
};
template <class X, class Y, class W>
Line weighted_line(const Points& points, X x, Y y, W w) {
  double total = 0;
  double mean_x = 0;
  double mean_y = 0;
  for (const plan::Measurement& p : points) total += w(p);
  for (const plan::Measurement& p : points) mean_x += w(p) * x(p) / total;
  for (const plan::Measurement& p : points) mean_y += w(p) * y(p) / total;
  double covariance = 0;
  double variance = 0;
  for (const plan::Measurement& p : points) {
    covariance += w(p) * (x(p) - mean_x) * (y(p) - mean_y);
    variance += w(p) * (x(p) - mean_x) * (x(p) - mean_x);
  }
  const double slope = covariance / variance;
  return {mean_y - slope * mean_x, slope};
}

double size_of(const plan::Measurement& p) { return p.size; }
double time_of(const plan::Measurement& p) { return p.time.value(); }
double log_time(const plan::Measurement& p) { return std::log(p.time.value()); }
double relative_weight(const plan::Measurement& p) { return 1 / (p.time.value() * p.time.value()); }
double no_weight(const plan::Measurement&) { return 1; }

const std::vector<double> kMessageSizes = {1e3, 1e4, 1e5, 1e6, 1e7, 1e8};
const std::vector<double> kDimensions = {64, 128, 256, 512, 1024, 2048, 4096};

void expect_perfect(const plan::FitQuality& quality) {
  EXPECT_NEAR(quality.r_squared, 1, 1e-9);
  EXPECT_NEAR(quality.max_relative_error, 0, 1e-6);
}

TEST(FitCollective, RecoversTheLineItsPointsLieOn) {
  const auto fit =
      plan::fit_collective(points_at(kMessageSizes, [](double m) { return 1e-3 + 2e-9 * m; }));
  EXPECT_NEAR(fit.model.alpha().value() / 1e-3, 1, kRecovered);
  EXPECT_NEAR(fit.model.beta().value() / 2e-9, 1, kRecovered);
  EXPECT_EQ(fit.model.per_tensor().value(), 0);
  EXPECT_FALSE(fit.model.table().has_value());
  expect_perfect(fit.quality);
}

TEST(FitCollective, MinimisesRelativeErrorsOfNoisyPoints) {
  // Σ ((t − α − β·m)/t)² is least squares with weights 1/t².
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const Points points =
        noisy(points_at(kMessageSizes, [](double m) { return 1e-3 + 2e-9 * m; }), 0.2, seed);
    const Line line = weighted_line(points, size_of, time_of, relative_weight);
    ASSERT_GT(line.a, 0);
    ASSERT_GT(line.b, 0);
    const auto fit = plan::fit_collective(points);
    EXPECT_NEAR(fit.model.alpha().value() / line.a, 1, kSameMinimum) << "seed " << seed;
    EXPECT_NEAR(fit.model.beta().value() / line.b, 1, kSameMinimum) << "seed " << seed;
  }
}

TEST(FitCollective, StartupIsZeroWhereItWouldBeNegative) {
  // The line through (1, 1) and (2, 3) meets zero at −1. Without start-up Σ (1 − β·m/t)² is least
  // at β = Σ(m/t) / Σ(m/t)² = (1 + 2/3) / (1 + 4/9) = 15/13.
  const auto fit = plan::fit_collective(Points{{1, Seconds(1)}, {2, Seconds(3)}});
  EXPECT_EQ(fit.model.alpha().value(), 0);
  EXPECT_NEAR(fit.model.beta().value(), 15.0 / 13, 1e-12);
}

TEST(FitCollective, SlopeIsZeroWhereItWouldBeNegative) {
  // Falling times; a constant with least relative error: α = Σ(1/t) / Σ(1/t²) = 1.5 / 1.25.
  const auto fit = plan::fit_collective(Points{{1, Seconds(2)}, {2, Seconds(1)}});
  EXPECT_EQ(fit.model.beta().value(), 0);
  EXPECT_NEAR(fit.model.alpha().value(), 1.2, 1e-12);
}

TEST(FitExponential, RecoversThePapersForm) {
  const auto fit = plan::fit_exponential(
      points_at(kDimensions, [](double d) { return 3.64e-3 * std::exp(4.77e-4 * d); }));
  EXPECT_NEAR(fit.model.alpha / 3.64e-3, 1, kRecovered);
  EXPECT_NEAR(fit.model.beta / 4.77e-4, 1, kRecovered);
  expect_perfect(fit.quality);
}

TEST(FitExponential, IsALineInTheLogarithmOfTime) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const Points points =
        noisy(points_at(kDimensions, [](double d) { return 3.64e-3 * std::exp(4.77e-4 * d); }), 0.3,
              seed);
    const Line line = weighted_line(points, size_of, log_time, no_weight);
    const auto fit = plan::fit_exponential(points);
    EXPECT_NEAR(fit.model.alpha / std::exp(line.a), 1, kSameMinimum);
    EXPECT_NEAR(fit.model.beta / line.b, 1, kSameMinimum);
  }
}

TEST(FitCubic, RecoversTheCubicItsPointsLieOn) {
  const auto fit = plan::fit_cubic(points_at(
      kDimensions, [](double d) { return 1e-4 + 2e-7 * d + 3e-10 * d * d + 5e-14 * d * d * d; }));
  EXPECT_NEAR(fit.model.c0 / 1e-4, 1, kRecovered);
  EXPECT_NEAR(fit.model.c1 / 2e-7, 1, kRecovered);
  EXPECT_NEAR(fit.model.c2 / 3e-10, 1, kRecovered);
  EXPECT_NEAR(fit.model.c3 / 5e-14, 1, kRecovered);
  expect_perfect(fit.quality);
}

TEST(FitCubic, RecoversMissingTermsAsZero) {
  const auto fit =
      plan::fit_cubic(points_at(kDimensions, [](double d) { return 5e-5 + 4e-14 * d * d * d; }));
  EXPECT_NEAR(fit.model.c0 / 5e-5, 1, kRecovered);
  EXPECT_NEAR(fit.model.c3 / 4e-14, 1, kRecovered);
  // Their share of the time stays below a millionth, even at the largest dimension.
  EXPECT_NEAR(fit.model.c1 * 4096, 0, kRecovered * 5e-5);
  EXPECT_NEAR(fit.model.c2 * 4096 * 4096, 0, kRecovered * 5e-5);
}

// The problem is convex, so these conditions hold at the minimum over non-negative coefficients
// and nowhere else: the slope of Σ (1 − Σ c_k·d^k/t)² is zero along a positive coefficient and
// does not fall along one that is zero.
void expect_minimum_of_non_negative_cubics(const Points& points, const CubicInverse& model) {
  const std::array<double, 4> c = {model.c0, model.c1, model.c2, model.c3};
  for (std::size_t k = 0; k < c.size(); ++k) {
    ASSERT_GE(c[k], 0);
    double slope = 0;
    double size = 0;  // of the terms that must cancel
    for (const plan::Measurement& p : points) {
      double fitted = 0;
      for (std::size_t j = 0; j < c.size(); ++j) fitted += c[j] * std::pow(p.size, j);
      const double basis = std::pow(p.size, k) / p.time.value();
      slope += -2 * basis * (1 - fitted / p.time.value());
      size += 2 * basis;
    }
    if (c[k] > 0) {
      EXPECT_NEAR(slope / size, 0, 1e-6) << "c" << k;
    } else {
      EXPECT_GE(slope / size, -1e-6) << "c" << k;
    }
  }
}

TEST(FitCubic, MinimisesRelativeErrorsOverNonNegativeCoefficients) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Points points = noisy(
        points_at(kDimensions,
                  [](double d) { return 1e-4 + 2e-7 * d + 3e-10 * d * d + 5e-14 * d * d * d; }),
        0.4, seed);
    expect_minimum_of_non_negative_cubics(points, plan::fit_cubic(points).model);
  }
}

TEST(FitQuality, ResidualsAndRSquaredAreInSeconds) {
  // The slope would be negative, so the fit is the constant 1.2 (see above).
  const auto fit = plan::fit_collective(Points{{2, Seconds(1)}, {1, Seconds(2)}});
  ASSERT_EQ(fit.quality.residuals.size(), 2U);
  EXPECT_NEAR(fit.quality.residuals[0].value(), 1 - 1.2, 1e-12);  // measured − fitted, as given
  EXPECT_NEAR(fit.quality.residuals[1].value(), 2 - 1.2, 1e-12);
  // Σ residual² = 0.04 + 0.64; around the mean 1.5: 0.25 + 0.25.
  EXPECT_NEAR(fit.quality.r_squared, 1 - 0.68 / 0.5, 1e-12);
  // 0.2/1 and 0.8/2.
  EXPECT_NEAR(fit.quality.max_relative_error, 0.4, 1e-12);
}

using TablePoints = std::vector<std::pair<double, Seconds>>;

TEST(FitTable, TakesTheMedianOfEachSizeInOrderOfSize) {
  const auto fit = plan::fit_table(Points{{20, Seconds(9)},
                                          {10, Seconds(1)},
                                          {20, Seconds(5)},
                                          {10, Seconds(100)},
                                          {20, Seconds(6)},
                                          {10, Seconds(3)}});
  EXPECT_EQ(fit.model.points(), (TablePoints{{10, Seconds(3)}, {20, Seconds(6)}}));
  // Residuals are in the order of the measurements.
  ASSERT_EQ(fit.quality.residuals.size(), 6U);
  EXPECT_DOUBLE_EQ(fit.quality.residuals[0].value(), 9 - 6);
  EXPECT_DOUBLE_EQ(fit.quality.residuals[3].value(), 100 - 3);
}

TEST(FitTable, MedianOfAnEvenNumberIsBetweenTheTwoInTheMiddle) {
  const auto fit = plan::fit_table(Points{
      {10, Seconds(1)}, {10, Seconds(2)}, {10, Seconds(8)}, {10, Seconds(4)}, {20, Seconds(5)}});
  EXPECT_EQ(fit.model.points(), (TablePoints{{10, Seconds(3)}, {20, Seconds(5)}}));
}

TEST(FitTable, PoolsNeighboursThatDecrease) {
  // 4, 2 pool to 3; then 3, 6, 3 → 6 and 3 pool to 4.5; 5 stays.
  const auto fit = plan::fit_table(
      Points{{1, Seconds(4)}, {2, Seconds(2)}, {3, Seconds(6)}, {4, Seconds(3)}, {5, Seconds(5)}});
  EXPECT_EQ(fit.model.points(), (TablePoints{{1, Seconds(3)},
                                             {2, Seconds(3)},
                                             {3, Seconds(4.5)},
                                             {4, Seconds(4.5)},
                                             {5, Seconds(5)}}));
}

TEST(FitTable, PoolingReachesBackOverEarlierPools) {
  // 2, 5, 2 → 5 and 2 pool to 3.5; then 0.5 joins: (5 + 2 + 0.5)/3 = 2.5; then 2 ≤ 2.5 holds.
  const auto fit =
      plan::fit_table(Points{{1, Seconds(2)}, {2, Seconds(5)}, {3, Seconds(2)}, {4, Seconds(0.5)}});
  EXPECT_EQ(
      fit.model.points(),
      (TablePoints{{1, Seconds(2)}, {2, Seconds(2.5)}, {3, Seconds(2.5)}, {4, Seconds(2.5)}}));
}

// Each fit by name; the result does not matter.
struct NamedFit {
  const char* name;
  void (*fit)(const Points&);
  std::size_t coefficients;
};
void PrintTo(const NamedFit& fit, std::ostream* out) { *out << fit.name; }

class EveryFit : public ::testing::TestWithParam<NamedFit> {
 protected:
  static std::string message(const Points& points) {
    return config_error([&] { GetParam().fit(points); });
  }
  // As many sizes as asked for.
  static Points enough(std::size_t count) {
    Points points;
    for (std::size_t i = 1; i <= count; ++i) {
      points.push_back({static_cast<double>(i), Seconds(static_cast<double>(i))});
    }
    return points;
  }
};

TEST_P(EveryFit, NeedsAsManyDifferentSizesAsCoefficients) {
  EXPECT_NO_THROW(GetParam().fit(enough(GetParam().coefficients)));
  EXPECT_THAT(message({}), Not(HasSubstr("(no error)")));
  Points too_few = enough(GetParam().coefficients - 1);
  EXPECT_THAT(message(too_few), Not(HasSubstr("(no error)")));
  // The same size again is no other size.
  for (int i = 0; i < 5 && !too_few.empty(); ++i) too_few.push_back(too_few.front());
  EXPECT_THAT(message(too_few), HasSubstr("size"));
}

TEST_P(EveryFit, NeedsPositiveFiniteTimes) {
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    Points points = enough(6);
    points[2].time = Seconds(bad);
    EXPECT_THAT(message(points), HasSubstr("time")) << bad;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fits, EveryFit,
    ::testing::Values(NamedFit{"Collective", [](const Points& p) { plan::fit_collective(p); }, 2},
                      NamedFit{"Exponential", [](const Points& p) { plan::fit_exponential(p); }, 2},
                      NamedFit{"Cubic", [](const Points& p) { plan::fit_cubic(p); }, 4},
                      NamedFit{"Table", [](const Points& p) { plan::fit_table(p); }, 1}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace spdkfac
