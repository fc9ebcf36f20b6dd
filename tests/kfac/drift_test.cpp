// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/drift.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/device.h"

namespace spdkfac::kfac {
namespace {

using support::test_options;

TEST(Drift, IsTheRelativeChangeOfTheDiagonal) {
  // Two groups with diagonals (3, 4) and (0, 12); only the upper triangles are meant.
  const at::Tensor factor = torch::zeros({2, 2, 2}, test_options(at::kFloat));
  factor[0][0][0] = 3;
  factor[0][1][1] = 4;
  factor[0][1][0] = NAN;
  factor[1][1][1] = 12;
  const at::Tensor other = torch::full({1, 1, 1}, 2.0, test_options(at::kFloat));
  const at::Tensor kept = torch::zeros({2, 2}, test_options(at::kFloat));
  const at::Tensor none = torch::zeros({1, 1}, test_options(at::kFloat));
  keep_diagonals({factor}, {kept});
  EXPECT_TRUE(torch::equal(kept.cpu(), torch::tensor({{3.F, 4.F}, {0.F, 12.F}})));
  EXPECT_EQ(relative_changes({factor}, {kept}).item<double>(), 0);
  // ‖(3, 4, 0, 12)‖ = 13; the change (5, 0, 0, 12) is as long.
  factor[0][0][0] = 8;
  factor[1][1][1] = 24;
  const at::Tensor changes = relative_changes({factor, other}, {kept, none}).cpu();
  EXPECT_DOUBLE_EQ(changes[0].item<double>(), 1);
  EXPECT_EQ(changes[1].item<double>(), 1e30);  // from nothing
  EXPECT_EQ(relative_changes({other * 0}, {none}).item<double>(), 0);
}

}  // namespace
}  // namespace spdkfac::kfac
