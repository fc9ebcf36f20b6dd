// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/synthetic.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spdkfac/data/batches.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using Indices = std::vector<std::int64_t>;

const data::SyntheticOptions kSmall{.shape = {2, 12, 9}, .classes = 3, .examples = 100, .seed = 7};

TEST(Synthetic, AnExampleDependsOnSeedSplitAndIndexOnly) {
  const data::Dataset data = data::make_synthetic(data::Split::kTrain, kSmall);
  const data::Batch both = gather(data, Indices{5, 17});
  const data::Batch one = gather(data::make_synthetic(data::Split::kTrain, kSmall), Indices{17});
  EXPECT_TRUE(both.images[1].equal(one.images[0]));
  EXPECT_TRUE(both.labels.equal(at::tensor({2, 2}, at::kLong)));  // 5 and 17 modulo 3
  EXPECT_FALSE(both.images[0].equal(both.images[1]));

  data::SyntheticOptions other = kSmall;
  other.seed = 8;
  EXPECT_FALSE(gather(data::make_synthetic(data::Split::kTrain, other), Indices{17})
                   .images.equal(one.images));
  EXPECT_FALSE(gather(data::make_synthetic(data::Split::kTest, kSmall), Indices{17})
                   .images.equal(one.images));
}

TEST(Synthetic, DoesNotDependOnTheMachine) {
  // From another program; pixels are exact, only their sum depends on its order.
  const data::Batch batch = gather(data::make_synthetic(data::Split::kTrain, kSmall), Indices{0});
  const at::Tensor sum = batch.images.to(at::kDouble).sum();
  EXPECT_NEAR(sum.item<double>(), -15.137281280010939, 1e-12);
}

TEST(Synthetic, IsUnitNoiseAroundOnePatternPerClass) {
  data::SyntheticOptions options = kSmall;
  options.examples = 30000;
  const data::Dataset train = data::make_synthetic(data::Split::kTrain, options);
  Indices of_class_1(2000);
  for (std::size_t i = 0; i < of_class_1.size(); ++i) {
    of_class_1[i] = 1 + 3 * static_cast<std::int64_t>(i);
  }
  const auto mean_and_noise = [&](const data::Dataset& data) {
    const at::Tensor images = gather(data, of_class_1).images;
    return std::pair{images.mean(0), images.std(0).mean().item<double>()};
  };
  const auto [mean, noise] = mean_and_noise(train);
  EXPECT_NEAR(noise, 1, 0.02);
  // The mean of 2000 images is the pattern, here of deviation 1/4, up to 1/√2000 = 0.02 a pixel;
  // that of the other split agrees.
  EXPECT_NEAR(mean.std().item<double>(), 0.25, 0.05);
  const auto [test_mean, test_noise] =
      mean_and_noise(data::make_synthetic(data::Split::kTest, options));
  EXPECT_LT((mean - test_mean).abs().max().item<double>(), 6 * 0.02 * std::sqrt(2.0));
}

TEST(Synthetic, ALargeSetTakesLittleMemory) {
  const data::Dataset data = data::make_synthetic(
      data::Split::kTrain, {.shape = {3, 224, 224}, .classes = 1000, .examples = 1'000'000'000});
  EXPECT_LT(data.synthetic->patterns.nbytes() + data.synthetic->noise.nbytes(), 8u << 20);
  const data::Batch batch = gather(data, Indices{999'999'999, 3});
  EXPECT_EQ(batch.images.sizes(), (at::IntArrayRef{2, 3, 224, 224}));
  EXPECT_TRUE(batch.labels.equal(at::tensor({999, 3}, at::kLong)));
}

TEST(Synthetic, OptionsOutOfRangeAreNamed) {
  const auto error = [](auto change) {
    data::SyntheticOptions options = kSmall;
    change(options);
    return support::config_error([&] { data::make_synthetic(data::Split::kTrain, options); });
  };
  EXPECT_EQ(error([](data::SyntheticOptions& o) { o.shape.height = 0; }),
            "synthetic: each size of the images must be from 1 to 65536 (got 0); change it");
  EXPECT_EQ(error([](data::SyntheticOptions& o) {
              o.shape = {65536, 65536, 65536};
            }),
            "synthetic: the pixels of an image must be from 1 to 268435456 (got "
            "281474976710656); change it");
  EXPECT_EQ(error([](data::SyntheticOptions& o) { o.classes = 0; }),
            "synthetic: classes must be from 1 to 1000000 (got 0); change it");
  EXPECT_EQ(error([](data::SyntheticOptions& o) { o.examples = -1; }),
            "synthetic: examples must be from 1 to 1000000000 (got -1); change it");
}

}  // namespace
}  // namespace spdkfac
