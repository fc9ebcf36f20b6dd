// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/precision.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/matrices.h"
#include "support/special_values.h"

namespace spdkfac {
namespace {

// A float of 11 bits is a multiple of 2^(exponent − 10).
TEST(RoundedTo, Tf32KeepsElevenBits) {
  const at::Tensor values = support::normal(1, {1000}).to(at::kFloat).mul(1e3);
  const at::Tensor rounded = rounded_to(Precision::kTf32, values);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const auto before = values[i].item<double>();
    const auto after = rounded[i].item<double>();
    int exponent = 0;
    std::frexp(after, &exponent);
    const double unit = std::ldexp(1.0, exponent - 11);
    EXPECT_EQ(std::fmod(after, unit), 0) << before;
    EXPECT_LT(std::abs(after - before), unit) << before;
  }
}

TEST(RoundedTo, IsIdempotentAndLeavesOtherTypesAlone) {
  const at::Tensor values = support::normal(2, {100});
  const at::Tensor once = rounded_to(Precision::kTf32, values.to(at::kFloat));
  EXPECT_TRUE(at::equal(rounded_to(Precision::kTf32, once), once));
  EXPECT_TRUE(at::equal(rounded_to(Precision::kTf32, values), values));
  EXPECT_TRUE(
      at::equal(rounded_to(Precision::kFp32, values.to(at::kFloat)), values.to(at::kFloat)));
  EXPECT_EQ(rounded_to(Precision::kBf16, once).scalar_type(), at::kBFloat16);
}

TEST(RoundedTo, WhatIsNotFiniteStaysSo) {
  const auto inf = static_cast<float>(kInf);
  const auto nan = static_cast<float>(kNan);
  at::Tensor values = at::tensor({inf, -inf, nan}, at::kFloat);
  EXPECT_FALSE(rounded_to(Precision::kTf32, values).isfinite().any().item<bool>());
}

// Products and sums of rounded rows are one sum of squares; with sums of the rows themselves, as
// the border of A once was, it has negative eigenvalues.
TEST(RoundedTo, OnlyOneRoundingGivesASumOfSquares) {
  const at::Tensor rows = support::normal(3, {8, 100}).to(at::kFloat).mul(3).add(20);
  const at::Tensor rounded = rounded_to(Precision::kTf32, rows);
  const auto lowest = [&](const at::Tensor& summed) {
    const at::Tensor x = rounded.to(at::kDouble);
    const at::Tensor border = summed.to(at::kDouble).sum(0).unsqueeze(1);
    const at::Tensor corner = at::full({1, 1}, 8., at::kDouble);
    return at::linalg_eigvalsh(
               at::cat({at::cat({x.t().mm(x), border}, 1), at::cat({border.t(), corner}, 1)}))
        .min()
        .item<double>();
  };
  EXPECT_GT(lowest(rounded), -1e-9);
  EXPECT_LT(lowest(rows), -1e-3);
}

}  // namespace
}  // namespace spdkfac
