// SPDX-License-Identifier: Apache-2.0
// What ranks keep, what they save, and what they do with numbers that are not finite.
#include <limits>
#include <sstream>

#include <gtest/gtest.h>

#include "distributed/ranks_fixture.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

std::string saved(Preconditioner& kfac) {
  torch::serialize::OutputArchive archive;
  kfac.save(archive);
  std::ostringstream text;
  archive.save_to(text);
  return text.str();
}

void restore(Preconditioner& kfac, const std::string& content) {
  torch::serialize::InputArchive archive;
  std::istringstream text(content);
  archive.load_from(text);
  kfac.load(archive);
}

TEST(RankState, GoesOnBitForBitAfterLoading) {
  for (const std::string& algorithm : all_algorithms()) {
    SCOPED_TRACE(algorithm);
    RankRun run;
    run.algorithm = algorithm;
    run.kfac.factor_interval = 2;
    run.kfac.inverse_interval = 4;
    const at::Tensor expected = trained(run).back();

    RankNet model = seeded_net();
    std::mt19937 random(1);
    std::string content;
    {
      Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
      for (std::int64_t step = 0; step < 5; ++step) {
        train_step(model, kfac, run, world()->rank(), step, random);
      }
      content = saved(kfac);
      // Saving changes nothing.
      train_step(model, kfac, run, world()->rank(), 5, random);
      const at::Tensor after = flat_parameters(model);
      model = seeded_net();
      EXPECT_TRUE(same_on_all_ranks(after));
    }
    Preconditioner fresh(*model, run.kfac, distribution_of(run, world()));
    for (std::int64_t step = 0; step < 5; ++step) {
      train_step(model, fresh, run, world()->rank(), step, random);
    }
    Preconditioner* kfac = &fresh;
    restore(*kfac, content);
    for (std::int64_t step = 5; step < run.steps; ++step) {
      train_step(model, *kfac, run, world()->rank(), step, random);
    }
    EXPECT_TRUE(torch::equal(flat_parameters(model), expected));
  }
}

TEST(RankState, AnotherNumberOfRanksCanGoOn) {
  // The state of all ranks, loaded by each of them alone.
  RankRun run;
  run.algorithm = "owner-blocks";
  RankNet model = seeded_net();
  std::mt19937 random(1);
  std::string content;
  {
    Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
    for (std::int64_t step = 0; step < 2; ++step) {
      train_step(model, kfac, run, world()->rank(), step, random);
    }
    content = saved(kfac);
  }
  Preconditioner alone(*model, run.kfac);
  restore(alone, content);
  EXPECT_EQ(alone.counters().steps, 2);
  train_step(model, alone, run, /*rank=*/0, 2, random);
  EXPECT_TRUE(same_on_all_ranks(flat_parameters(model)));
}

TEST(RankState, AFactorOfAnOwnerIsStoredByNobodyElse) {
  const auto memory_of = [](const std::string& algorithm) {
    RankRun run;
    run.algorithm = algorithm;
    RankNet model = seeded_net();
    Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
    std::mt19937 random(1);
    train_step(model, kfac, run, world()->rank(), 0, random);
    return kfac.memory();
  };
  const auto total = [](Bytes mine) {
    at::Tensor sum = at::full({1}, mine.value(), at::kLong);
    world()->all_reduce_async(sum, "bytes").wait();
    return sum.item<std::int64_t>();
  };
  const KfacMemory all = memory_of("d-kfac");
  EXPECT_EQ(all.factors, all.inverses);
  // Together the owners store each factor once.
  const KfacMemory reduced = memory_of("owner-reduce");
  EXPECT_EQ(total(reduced.factors), all.factors.value());
  EXPECT_EQ(reduced.inverses, all.inverses);
  const KfacMemory preconditioned = memory_of("owner-precondition");
  EXPECT_EQ(total(preconditioned.factors), all.factors.value());
  EXPECT_EQ(total(preconditioned.inverses), all.inverses.value());
}

TEST(RankState, AFactorThatIsNotFiniteOnOneRankIsLeftOutByAll) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* algorithm : {"d-kfac", "spd-kfac", "owner-reduce", "owner-blocks"}) {
    SCOPED_TRACE(algorithm);
    RankRun run;
    run.algorithm = algorithm;
    RankNet model = seeded_net();
    Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
    std::mt19937 random(1);
    for (std::int64_t step = 0; step < 2; ++step) {
      train_step(model, kfac, run, world()->rank(), step, random);
    }
    const at::Tensor before = flat_parameters(model);
    model->zero_grad();
    RankBatch batch = rank_batch(world()->rank(), 2);
    if (world()->rank() == world()->size() - 1) batch.images[0][0][0][0] = nan;
    rank_loss(model, batch).backward();
    kfac.step(kRankRate);
    // Gradients are zero on all ranks: the step changes nothing.
    for (const at::Tensor& parameter : model->parameters()) {
      EXPECT_EQ(parameter.grad().abs().max().item<float>(), 0);
    }
    EXPECT_EQ(kfac.counters().nonfinite_gradients, 1);
    at::Tensor left_out = at::full({1}, kfac.counters().nonfinite_factors, at::kLong);
    world()->all_reduce_async(left_out, "count").wait();
    EXPECT_GE(left_out.item<std::int64_t>(), 1);
    for (std::int64_t step = 3; step < 5; ++step) {
      train_step(model, kfac, run, world()->rank(), step, random);
    }
    const at::Tensor after = flat_parameters(model);
    EXPECT_TRUE(after.isfinite().all().item<bool>());
    EXPECT_FALSE(torch::equal(after, before));
    EXPECT_TRUE(same_on_all_ranks(after));
  }
}

TEST(RankState, ADiscardedBatchLeavesNoTrace) {
  for (const char* algorithm : {"d-kfac", "naive", "spd-kfac", "owner-blocks"}) {
    SCOPED_TRACE(algorithm);
    RankRun run;
    run.algorithm = algorithm;
    run.steps = 4;
    const at::Tensor expected = trained(run).back();
    RankNet model = seeded_net();
    Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
    std::mt19937 random(1);
    for (std::int64_t step = 0; step < run.steps; ++step) {
      if (step == 2) {
        rank_loss(model, rank_batch(world()->rank(), 77)).backward();
        kfac.discard();
      }
      train_step(model, kfac, run, world()->rank(), step, random);
    }
    EXPECT_TRUE(torch::equal(flat_parameters(model), expected));
  }
}

}  // namespace
}  // namespace spdkfac
