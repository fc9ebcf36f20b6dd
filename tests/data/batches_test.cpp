// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/batches.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/check.h"
#include "spdkfac/data/shuffle.h"
#include "spdkfac/data/synthetic.h"

namespace spdkfac {
namespace {

using Indices = std::vector<std::int64_t>;

// Image i is filled with i and has label i modulo 4.
data::Dataset numbered(std::int64_t size, data::Split split) {
  data::Dataset data;
  data.name = "numbered";
  data.split = split;
  data.size = size;
  data.shape = {2, 3, 3};
  data.classes = 4;
  data.images =
      at::arange(size, at::kByte).view({size, 1, 1, 1}).expand({size, 2, 3, 3}).contiguous();
  data.labels = at::arange(size, at::kLong).remainder(4);
  return data;
}

TEST(Permutation, IsOneAndDependsOnSeedAndEpoch) {
  Indices expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  const Indices order = data::permutation(1000, 3, 5);
  Indices sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, expected);
  EXPECT_EQ(order, data::permutation(1000, 3, 5));
  EXPECT_NE(order, data::permutation(1000, 3, 6));
  EXPECT_NE(order, data::permutation(1000, 4, 5));
  EXPECT_EQ(data::permutation(0, 1, 1), Indices());
}

TEST(Permutation, IsTheSameOnEveryMachine) {
  // From another program; a change here changes every training run.
  EXPECT_EQ(data::permutation(10, 1, 0), Indices({5, 0, 8, 7, 3, 1, 9, 6, 4, 2}));
}

TEST(Permutation, EveryPlaceIsEquallyLikely) {
  // 6000 draws of where 0 of 6 lands: 1000 each, with deviation √(6000·1/6·5/6) = 29.
  std::vector<int> counts(6);
  for (std::int64_t epoch = 0; epoch < 6000; ++epoch) {
    const Indices order = data::permutation(6, 99, epoch);
    ++counts[static_cast<std::size_t>(std::find(order.begin(), order.end(), 0) - order.begin())];
  }
  EXPECT_THAT(counts, testing::Each(testing::AllOf(testing::Gt(850), testing::Lt(1150))));
}

struct Shards {
  std::int64_t size;
  std::int64_t batch;
  int world;
};
void PrintTo(const Shards& s, std::ostream* out) {
  *out << s.size << " examples, batch " << s.batch << ", " << s.world << " workers";
}

class BatchesOfShards : public testing::TestWithParam<Shards> {
 protected:
  data::Batches batches(data::Split split, int rank) const {
    const auto [size, batch, world] = GetParam();
    return data::Batches(
        numbered(size, split),
        {.batch = batch, .shuffle = true, .seed = 4, .epoch = 2, .rank = rank, .world = world});
  }
};

TEST_P(BatchesOfShards, TrainingTakesWholeBatchesOfOneOrder) {
  const auto [size, batch, world] = GetParam();
  const std::int64_t together = batch * world;
  const Indices order = data::permutation(size, 4, 2);
  for (int rank = 0; rank < world; ++rank) {
    const data::Batches shard = batches(data::Split::kTrain, rank);
    ASSERT_EQ(shard.size(), size / together);
    EXPECT_EQ(shard.examples(), shard.size() * batch);
    for (std::int64_t k = 0; k < shard.size(); ++k) {
      const auto begin = order.begin() + k * together + rank * batch;
      EXPECT_EQ(shard.indices(k), Indices(begin, begin + batch));
    }
  }
}

TEST_P(BatchesOfShards, EvaluationTakesEveryExampleOnce) {
  const auto [size, batch, world] = GetParam();
  Indices seen;
  std::int64_t examples = 0;
  for (int rank = 0; rank < world; ++rank) {
    const data::Batches shard = batches(data::Split::kTest, rank);
    EXPECT_EQ(shard.size(), (size + batch * world - 1) / (batch * world));
    examples += shard.examples();
    for (std::int64_t k = 0; k < shard.size(); ++k) {
      const Indices indices = shard.indices(k);
      EXPECT_LE(static_cast<std::int64_t>(indices.size()), batch);
      seen.insert(seen.end(), indices.begin(), indices.end());
    }
  }
  EXPECT_EQ(examples, size);
  std::sort(seen.begin(), seen.end());
  Indices expected(static_cast<std::size_t>(size));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

INSTANTIATE_TEST_SUITE_P(Table, BatchesOfShards,
                         testing::Values(Shards{100, 10, 1}, Shards{100, 10, 2}, Shards{103, 10, 3},
                                         Shards{101, 100, 4}, Shards{7, 1, 8}, Shards{64, 16, 4},
                                         Shards{1, 1, 1}, Shards{250, 7, 5}));

TEST(Batches, GiveNormalisedImagesOfTheirIndices) {
  data::Dataset data = numbered(200, data::Split::kTrain);
  data.mean = {0.5, 0.25};
  data.deviation = {0.1, 0.2};
  const data::Batches batches(data, {.batch = 8, .shuffle = true, .seed = 1});
  const data::Batch batch = batches.at(3);
  EXPECT_EQ(batch.size(), 8);
  EXPECT_EQ(batch.images.scalar_type(), at::kFloat);
  const Indices indices = batches.indices(3);
  for (std::int64_t i = 0; i < 8; ++i) {
    const std::int64_t index = indices[static_cast<std::size_t>(i)];
    const double pixel = static_cast<double>(index) / 255;
    EXPECT_EQ(batch.labels[i].item<std::int64_t>(), index % 4);
    EXPECT_NEAR(batch.images[i][0][2][1].item<double>(), (pixel - 0.5) / 0.1, 1e-5);
    EXPECT_NEAR(batch.images[i][1][0][0].item<double>(), (pixel - 0.25) / 0.2, 1e-5);
  }
}

TEST(Batches, DoNotChangeTheDataSet) {
  data::Dataset data = numbered(20, data::Split::kTest);
  data.images = data.images.to(at::kFloat);
  data.mean = {0.5, 0.5};
  data.deviation = {0.1, 0.1};
  const at::Tensor before = data.images.clone();
  EXPECT_NEAR(data::Batches(data, {.batch = 20}).at(0).images[2][0][0][0].item<double>(), 15, 1e-4);
  EXPECT_TRUE(data.images.equal(before));
}

TEST(Batches, WithoutShuffleKeepTheOrder) {
  const data::Batches batches(numbered(10, data::Split::kTest), {.batch = 4});
  EXPECT_EQ(batches.indices(0), Indices({0, 1, 2, 3}));
  EXPECT_EQ(batches.indices(2), Indices({8, 9}));
  EXPECT_EQ(batches.at(2).images.sizes(), (at::IntArrayRef{2, 2, 3, 3}));
  EXPECT_THROW(batches.at(3), InternalError);
}

TEST(Batches, AWorkerWithoutExamplesGetsAnEmptyBatch) {
  const data::Batches batches(numbered(1, data::Split::kTest), {.batch = 4, .rank = 0, .world = 2});
  EXPECT_EQ(batches.at(0).images.sizes(), (at::IntArrayRef{0, 2, 3, 3}));
  const data::Batches synthetic(
      data::make_synthetic(data::Split::kTest, {.shape = {2, 3, 3}, .classes = 2, .examples = 1}),
      {.batch = 4, .augment = true, .rank = 0, .world = 2});
  EXPECT_EQ(synthetic.at(0).images.sizes(), (at::IntArrayRef{0, 2, 3, 3}));
}

TEST(Batches, AugmentedImagesChangeWithTheEpoch) {
  const auto first = [](std::int64_t epoch) {
    return data::Batches(numbered(8, data::Split::kTrain),
                         {.batch = 8, .augment = true, .epoch = epoch})
        .at(0)
        .images;
  };
  EXPECT_TRUE(first(0).equal(first(0)));
  EXPECT_FALSE(first(0).equal(first(1)));
}

TEST(Batches, GoOnBehindWhatOthersHaveTaken) {
  // Two ranks with 4 examples each have taken 16 of 50; three ranks with 5 go on: 34/15 batches.
  const data::Dataset data = numbered(50, data::Split::kTrain);
  const Indices order = data::permutation(50, 4, 2);
  Indices taken;
  for (int rank = 0; rank < 2; ++rank) {
    const data::Batches before(
        data, {.batch = 4, .shuffle = true, .seed = 4, .epoch = 2, .rank = rank, .world = 2});
    for (std::int64_t k = 0; k < 2; ++k) {
      for (const std::int64_t one : before.indices(k)) taken.push_back(one);
    }
  }
  for (int rank = 0; rank < 3; ++rank) {
    const data::Batches after(data, {.batch = 5,
                                     .shuffle = true,
                                     .seed = 4,
                                     .epoch = 2,
                                     .rank = rank,
                                     .world = 3,
                                     .first = 16});
    EXPECT_EQ(after.size(), 2);
    for (std::int64_t k = 0; k < 2; ++k) {
      for (const std::int64_t one : after.indices(k)) taken.push_back(one);
    }
  }
  Indices expected(order.begin(), order.begin() + 46);
  std::sort(expected.begin(), expected.end());
  std::sort(taken.begin(), taken.end());
  EXPECT_EQ(taken, expected);
}

}  // namespace
}  // namespace spdkfac
