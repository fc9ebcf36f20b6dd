// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/units.h"

#include <concepts>

#include <gtest/gtest.h>

namespace spdkfac {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Comparable = requires(A a, B b) {
  a < b;
};

static_assert(Addable<Seconds, Seconds>);
static_assert(!Addable<Seconds, Bytes>);
static_assert(!Addable<Seconds, double>);
static_assert(!Comparable<Seconds, Flops>);
static_assert(!std::convertible_to<double, Seconds>);
static_assert(!std::convertible_to<Seconds, double>);
static_assert(sizeof(Seconds) == sizeof(double));

TEST(Quantity, StartsAtZero) {
  EXPECT_EQ(Seconds().value(), 0.0);
  EXPECT_EQ(Bytes().value(), 0);
}

TEST(Quantity, AddsAndSubtractsItsOwnKind) {
  Seconds time(1.5);
  time += Seconds(0.5);
  EXPECT_EQ(time, Seconds(2.0));
  time -= Seconds(0.75);
  EXPECT_EQ(time, Seconds(1.25));
  EXPECT_EQ(Bytes(5) + Bytes(7), Bytes(12));
  EXPECT_EQ(Bytes(5) - Bytes(7), Bytes(-2));
}

TEST(Quantity, ScalesByPlainNumbers) {
  EXPECT_EQ(Seconds(1.5) * 2.0, Seconds(3.0));
  EXPECT_EQ(2.0 * Seconds(1.5), Seconds(3.0));
  EXPECT_EQ(Seconds(3.0) / 2.0, Seconds(1.5));
  EXPECT_EQ(Bytes(7) / 2, Bytes(3));  // whole bytes
}

TEST(Quantity, RatioIsAPlainNumberEvenForWholeUnits) {
  EXPECT_EQ(Seconds(3.0) / Seconds(2.0), 1.5);
  EXPECT_EQ(Bytes(3) / Bytes(2), 1.5);
}

TEST(Quantity, IsOrdered) {
  EXPECT_LT(Seconds(1), Seconds(2));
  EXPECT_GE(Bytes(2), Bytes(2));
  EXPECT_NE(Flops(1), Flops(2));
}

TEST(Bytes, AMebibyteIs1048576) { EXPECT_EQ(kMebibyte, Bytes(1'048'576)); }

}  // namespace
}  // namespace spdkfac
