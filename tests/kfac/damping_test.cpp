// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/kfac/inverse.h"
#include "support/device.h"
#include "support/special_values.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::near_within;
using support::poison_lower;
using support::test_options;
using support::to_device;
using ::testing::ElementsAre;

// Some roundings of a root and a quotient, relative to values around 1.
constexpr double kDoubleTolerance = 1e-14;
constexpr double kFloatTolerance = 1e-6;

// Diagonal matrices, one for each group.
at::Tensor diagonal_factor(const std::vector<std::vector<double>>& diagonals,
                           at::ScalarType type = at::kDouble) {
  std::vector<at::Tensor> groups;
  for (const auto& values : diagonals) groups.push_back(at::diag(at::tensor(values, at::kDouble)));
  return to_device(at::stack(groups), type);
}

TEST(DampingOf, ModesHaveTheirNamesInOrder) {
  EXPECT_THAT(damping_names(), ElementsAre("plain", "pi", "relative"));
}

TEST(DampingOf, PlainAddsGammaToBothFactors) {
  const auto [a, g] = kfac::damping_of(diagonal_factor({{1, 2}, {3, 4}}),
                                       diagonal_factor({{5}, {6}}), Damping::kPlain, 0.03);
  EXPECT_EQ(a.device(), support::test_device());
  EXPECT_TRUE(near_within(a, at::tensor({0.03, 0.03}, at::kDouble), kDoubleTolerance));
  EXPECT_TRUE(near_within(g, at::tensor({0.03, 0.03}, at::kDouble), kDoubleTolerance));
}

TEST(DampingOf, PiBalancesTheMeanEigenvaluesOfEachGroup) {
  const at::Tensor factor_a = diagonal_factor({{6, 10, 8}, {1, 1, 1}});
  const at::Tensor factor_g = diagonal_factor({{1, 3}, {18, 0}});
  const auto [a, g] = kfac::damping_of(factor_a, factor_g, Damping::kPi, 0.04);
  // Group 0: mean eigenvalues 8 and 2, π = 2, √γ = 0.2. Group 1: 1 and 9, π = 1/3.
  EXPECT_TRUE(near_within(a, at::tensor({0.4, 0.2 / 3}, at::kDouble), kDoubleTolerance));
  EXPECT_TRUE(near_within(g, at::tensor({0.1, 0.6}, at::kDouble), kDoubleTolerance));
  EXPECT_EQ(a.device(), support::test_device());
  EXPECT_EQ(g.device(), support::test_device());
}

TEST(DampingOf, RelativeIsAShareOfTheMeanEigenvalueWhateverTheScale) {
  const at::Tensor factor_a = diagonal_factor({{6, 10, 8}, {1, 1, 1}});
  const at::Tensor factor_g = diagonal_factor({{1, 3}, {18, 0}});
  const auto [a, g] = kfac::damping_of(factor_a, factor_g, Damping::kRelative, 0.04);
  // Mean eigenvalues 8 and 2, 1 and 9; √γ = 0.2.
  EXPECT_TRUE(near_within(a, at::tensor({1.6, 0.2}, at::kDouble), kDoubleTolerance));
  EXPECT_TRUE(near_within(g, at::tensor({0.4, 1.8}, at::kDouble), kDoubleTolerance));
  const auto [a7, g7] = kfac::damping_of(7 * factor_a, factor_g / 7, Damping::kRelative, 0.04);
  EXPECT_TRUE(near_within(a7, 7 * a, kDoubleTolerance * 10));
  EXPECT_TRUE(near_within(g7, g / 7, kDoubleTolerance));
}

TEST(DampingOf, FloatFactorsGiveTheSameDamping) {
  const auto [a, g] = kfac::damping_of(diagonal_factor({{6, 10, 8}}, at::kFloat),
                                       diagonal_factor({{1, 3}}, at::kFloat), Damping::kPi, 0.04);
  EXPECT_EQ(a.scalar_type(), at::kFloat);
  EXPECT_TRUE(near_within(a, at::tensor({0.4}, at::kDouble), kFloatTolerance));
  EXPECT_TRUE(near_within(g, at::tensor({0.1}, at::kDouble), kFloatTolerance));
}

TEST(DampingOf, ReadsDiagonalsOnly) {
  at::Tensor factor_a = diagonal_factor({{2, 6}});
  factor_a[0][0][1] = -100;
  const auto [a, g] = kfac::damping_of(poison_lower(factor_a),
                                       poison_lower(diagonal_factor({{1, 1}})), Damping::kPi, 1);
  // π = √(4/1).
  EXPECT_TRUE(near_within(a, at::tensor({2}, at::kDouble), kDoubleTolerance));
  EXPECT_TRUE(near_within(g, at::tensor({0.5}, at::kDouble), kDoubleTolerance));
}

TEST(DampingOf, TraceThatIsNotPositiveAndFiniteGivesPiOne) {
  const std::vector<double> good = {4, 4};
  for (const double bad : {0.0, -1.0, kNan, kInf, -kInf}) {
    // Groups: bad A, bad G, both bad, both good.
    const at::Tensor factor_a = diagonal_factor({{bad, 0}, good, {bad, 0}, good});
    const at::Tensor factor_g = diagonal_factor({{1}, {bad}, {bad}, {1}});
    const auto [a, g] = kfac::damping_of(factor_a, factor_g, Damping::kPi, 0.25);
    EXPECT_TRUE(near_within(a, at::tensor({0.5, 0.5, 0.5, 1.0}, at::kDouble), kDoubleTolerance))
        << bad;
    EXPECT_TRUE(near_within(g, at::tensor({0.5, 0.5, 0.5, 0.25}, at::kDouble), kDoubleTolerance))
        << bad;
  }
}

// A quotient of traces can leave the range of float where its root does not.
TEST(DampingOf, VanishingGradientsStillGiveAFinitePi) {
  const auto [a, g] = kfac::damping_of(diagonal_factor({{1e3}}, at::kFloat),
                                       diagonal_factor({{1e-37}}, at::kFloat), Damping::kPi, 1);
  // π = √(1e40) = 1e20.
  EXPECT_TRUE(near_within(a, at::tensor({1e20}, at::kDouble), 1e20 * kFloatTolerance));
  EXPECT_TRUE(near_within(g, at::tensor({1e-20}, at::kDouble), 1e-20 * kFloatTolerance));
}

TEST(DampingOf, ZeroGammaAddsNothing) {
  for (const Damping mode : {Damping::kPlain, Damping::kPi}) {
    const auto [a, g] =
        kfac::damping_of(diagonal_factor({{1, 2}}), diagonal_factor({{3}}), mode, 0);
    EXPECT_EQ(a.item<double>(), 0);
    EXPECT_EQ(g.item<double>(), 0);
  }
}

// Other conventions scale A by c and G by 1/c: π takes up c, and the damped product stays.
TEST(DampingOf, PiKeepsTheDampedProductWhenAProductIsKept) {
  constexpr double kGamma = 0.01;
  for (const double c : {1e-4, 0.5, 196.0}) {
    const auto [a, g] = kfac::damping_of(diagonal_factor({{1, 2, 6}}), diagonal_factor({{5, 1}}),
                                         Damping::kPi, kGamma);
    const auto [scaled_a, scaled_g] =
        kfac::damping_of(diagonal_factor({{c, 2 * c, 6 * c}}), diagonal_factor({{5 / c, 1 / c}}),
                         Damping::kPi, kGamma);
    EXPECT_TRUE(near_within(scaled_a / c, a.cpu(), 10 * kDoubleTolerance)) << "c " << c;
    EXPECT_TRUE(near_within(scaled_g * c, g.cpu(), 10 * kDoubleTolerance)) << "c " << c;
    // π√γ·√γ/π = γ whatever the scale.
    EXPECT_NEAR((scaled_a * scaled_g).item<double>(), kGamma, kDoubleTolerance);
  }
}

}  // namespace
}  // namespace spdkfac
