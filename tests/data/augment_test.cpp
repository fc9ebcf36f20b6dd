// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/augment.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace spdkfac {
namespace {

// All pixels differ and none is zero, so a crop can be read off its pixels.
at::Tensor image() { return at::arange(1, 1 + 2 * 6 * 5, at::kInt).view({1, 2, 6, 5}); }

// The crop that starts at row `top` and column `left` of the padded image.
at::Tensor crop(std::int64_t top, std::int64_t left, bool flip) {
  at::Tensor result =
      at::constant_pad_nd(image(), {4, 4, 4, 4}).narrow(2, top, 6).narrow(3, left, 5);
  return flip ? result.flip({3}) : result;
}

TEST(Augment, TakesEveryShiftAndMirrorImageAndNothingElse) {
  std::vector<at::Tensor> crops;
  for (int top = 0; top <= 8; ++top) {
    for (int left = 0; left <= 8; ++left) {
      for (const bool flip : {false, true}) crops.push_back(crop(top, left, flip));
    }
  }
  std::vector<std::int64_t> indices(3000);
  std::iota(indices.begin(), indices.end(), 0);
  const at::Tensor images =
      data::random_crop_and_flip(image().expand({3000, 2, 6, 5}), indices, /*seed=*/1, /*epoch=*/0);
  std::set<std::size_t> seen;
  for (std::int64_t i = 0; i < images.size(0); ++i) {
    const auto found = std::find_if(crops.begin(), crops.end(),
                                    [&](const at::Tensor& c) { return c[0].equal(images[i]); });
    ASSERT_NE(found, crops.end());
    seen.insert(static_cast<std::size_t>(found - crops.begin()));
  }
  EXPECT_EQ(seen.size(), crops.size());  // 162 crops, 3000 draws
}

TEST(Augment, DependsOnSeedEpochAndIndexOnly) {
  const std::vector<std::int64_t> indices{11, 12, 13, 14, 15, 16, 17, 18};
  const auto run = [&](std::uint64_t seed, std::int64_t epoch,
                       std::span<const std::int64_t> which) {
    const auto count = static_cast<std::int64_t>(which.size());
    return data::random_crop_and_flip(image().expand({count, 2, 6, 5}), which, seed, epoch);
  };
  const at::Tensor all = run(1, 2, indices);
  EXPECT_TRUE(all.narrow(0, 3, 2).equal(run(1, 2, std::span(indices).subspan(3, 2))));
  EXPECT_FALSE(all.equal(run(2, 2, indices)));
  EXPECT_FALSE(all.equal(run(1, 3, indices)));
}

}  // namespace
}  // namespace spdkfac
