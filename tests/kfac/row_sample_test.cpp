// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/row_sample.h"

#include <set>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace spdkfac::kfac {
namespace {

// Row i holds i in all columns.
torch::Tensor numbered(torch::IntArrayRef shape) {
  const std::int64_t rows = shape.front();
  std::vector<std::int64_t> ones(shape.size(), 1);
  ones.front() = rows;
  return torch::arange(rows, torch::kDouble).view(ones).expand(shape).contiguous();
}

LayerUse use_of(std::int64_t examples, std::int64_t positions, bool convolution) {
  LayerUse use;
  use.examples = examples;
  use.positions = positions;
  if (convolution) use.conv = ConvGeometry{};
  return use;
}

TEST(RowSample, TakesAllRowsUnlessThereAreTwiceAsMany) {
  const torch::Tensor rows = numbered({30, 4});
  for (const std::int64_t most : {0, 16, 30, 100}) {
    const RowSample sample = sample_rows(rows, use_of(30, 1, false), most, 3);
    EXPECT_TRUE(sample.tensor.is_same(rows)) << most;
    EXPECT_EQ(sample.weight, 1) << most;
  }
}

TEST(RowSample, TakesEveryRowEquallyOftenAndWeighsItForTheOthers) {
  // 64 rows in [8, 8, 2]; 16 wanted: every fourth. Over many steps each phase comes up.
  const torch::Tensor rows = torch::arange(64, torch::kDouble).view({8, 8, 1}).expand({8, 8, 2});
  torch::Tensor sum = torch::zeros({2}, torch::kDouble);
  constexpr int kSteps = 4000;
  for (int step = 0; step < kSteps; ++step) {
    const RowSample sample = sample_rows(rows, use_of(8, 8, false), 16, step);
    ASSERT_EQ(sample.tensor.size(0), 16);
    EXPECT_EQ(sample.weight, 4);
    const torch::Tensor steps = sample.tensor.select(1, 0).diff();
    EXPECT_TRUE((steps == 4).all().item<bool>());
    sum += sample.weight * sample.tensor.sum(0);
  }
  // The phases 0 to 3 give 64·63/2 + 64·(phase − 3/2): at most 96 off. The mean of so many has a
  // standard error below 96/√4000; four of them are allowed.
  EXPECT_NEAR((sum[0] / kSteps).item<double>(), 64 * 63 / 2.0, 96 * 4 / std::sqrt(kSteps));
}

TEST(RowSample, KeepsWholeExamplesOfAConvolutionAndAtLeastAnEighth) {
  const torch::Tensor images = numbered({20, 3, 5, 5});
  // 20·25 rows, 10 wanted: every fiftieth, but at most every eighth example: 3 or 2 of 20.
  std::set<std::int64_t> firsts;
  for (int step = 0; step < 100; ++step) {
    const RowSample sample = sample_rows(images, use_of(20, 25, true), 10, step);
    ASSERT_EQ(sample.tensor.sizes().slice(1), images.sizes().slice(1));
    const auto first = sample.tensor[0][0][0][0].item<std::int64_t>();
    firsts.insert(first);
    EXPECT_EQ(sample.tensor.size(0), first < 4 ? 3 : 2);
    EXPECT_EQ(sample.weight, 20.0 / static_cast<double>(sample.tensor.size(0)));
  }
  EXPECT_EQ(firsts.size(), 8U);
}

TEST(RowSample, NeverTakesNothing) {
  const RowSample sample = sample_rows(numbered({2, 3, 40, 40}), use_of(2, 1600, true), 1, 7);
  EXPECT_EQ(sample.tensor.size(0), 1);
  EXPECT_EQ(sample.weight, 2);
  const torch::Tensor image = numbered({3, 40, 40});  // one example without its dimension
  EXPECT_TRUE(sample_rows(image, use_of(1, 1600, true), 1, 7).tensor.is_same(image));
}

TEST(RowSample, IsTheSameForTheSameStep) {
  const torch::Tensor rows = numbered({64, 2});
  for (int step = 0; step < 20; ++step) {
    EXPECT_TRUE(torch::equal(sample_rows(rows, use_of(64, 1, false), 8, step).tensor,
                             sample_rows(rows, use_of(64, 1, false), 8, step).tensor));
  }
}

}  // namespace
}  // namespace spdkfac::kfac
