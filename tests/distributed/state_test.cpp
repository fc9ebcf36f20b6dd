// SPDX-License-Identifier: Apache-2.0
// What ranks keep, what they save, and what they do with numbers that are not finite.
#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "distributed/ranks_fixture.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

// All tensors of a state, which rank 0 has, on every rank.
KfacState on_all_ranks(Preconditioner& kfac) {
  KfacStateStream stream = kfac.state();
  KfacState state{stream.options(), stream.counters(), {}};
  for (std::size_t i = 0; i < stream.tensors().size(); ++i) {
    const TensorSpec& spec = stream.tensors()[i];
    at::Tensor tensor = stream.read(i);
    EXPECT_TRUE(world()->rank() > 0 || tensor.defined()) << spec.name;
    const auto type = spec.dtype == "I64"   ? at::kLong
                      : spec.dtype == "F64" ? at::kDouble
                                            : at::kFloat;
    if (world()->rank() != 0) tensor = at::empty(spec.shape, type);
    EXPECT_EQ(tensor.scalar_type(), type);
    at::Tensor there = tensor.to(test_device()).contiguous();
    world()->broadcast_async(there, 0, "state").wait();
    state.tensors[spec.name] = there.cpu();
  }
  return state;
}

void copy_parameters(const RankNet& from, RankNet& to) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from->parameters().size(); ++i) {
    to->parameters()[i].copy_(from->parameters()[i]);
  }
}

// Of other weights, trained on other data.
RankNet another_net() {
  torch::manual_seed(70);
  return RankNet(at::kFloat);
}

TEST(RankState, GoesOnBitForBitAfterLoading) {
  for (const std::string& algorithm : all_algorithms()) {
    SCOPED_TRACE(algorithm);
    RankRun run;
    run.algorithm = algorithm;
    run.kfac.factor_interval = 2;
    run.kfac.inverse_interval = 4;
    run.steps = 9;  // the last one refreshes all
    std::mt19937 random(1);
    const int rank = world()->rank();
    // Into an object that has just been made, and into one that has worked already.
    for (const bool used : {false, true}) {
      RankNet model = seeded_net();
      Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
      for (std::int64_t step = 0; step < 5; ++step) {
        train_step(model, kfac, run, rank, step, random);
      }
      RankNet other = another_net();
      Preconditioner fresh(*other, run.kfac, distribution_of(run, world()));
      for (std::int64_t step = 50; used && step < 53; ++step) {
        train_step(other, fresh, run, rank, step, random);
      }
      fresh.load(on_all_ranks(kfac));
      copy_parameters(model, other);
      EXPECT_EQ(fresh.counters().steps, 5);
      for (std::int64_t step = 5; step < run.steps; ++step) {
        train_step(model, kfac, run, rank, step, random);
        train_step(other, fresh, run, rank, step, random);
        EXPECT_TRUE(torch::equal(flat_parameters(other), flat_parameters(model)))
            << "step " << step << ", used " << used;
      }
    }
  }
}

TEST(RankState, OfOwnTensorsOnlyGoesOnOnAllRanks) {
  RankRun run;
  run.algorithm = "owner-blocks";
  std::mt19937 random(1);
  const int rank = world()->rank();
  RankNet model = seeded_net();
  Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
  for (std::int64_t step = 0; step < 2; ++step) train_step(model, kfac, run, rank, step, random);
  const KfacState own = kfac.state().read_all();
  RankNet saved = another_net();
  copy_parameters(model, saved);
  train_step(model, kfac, run, rank, 2, random);
  // Into an object that has just been made and has no plan, and into one that has worked already.
  for (const bool used : {false, true}) {
    RankNet other = another_net();
    Preconditioner loaded(*other, run.kfac, distribution_of(run, world()));
    for (std::int64_t step = 40; used && step < 42; ++step) {
      train_step(other, loaded, run, rank, step, random);
    }
    loaded.load(own);
    copy_parameters(saved, other);
    train_step(other, loaded, run, rank, 2, random);
    EXPECT_TRUE(torch::equal(flat_parameters(other), flat_parameters(model))) << "used " << used;
  }
}

TEST(RankState, ATensorThatNoRankHasIsNamedOnAllRanks) {
  RankRun run;
  run.algorithm = "owner-blocks";
  std::mt19937 random(1);
  RankNet model = seeded_net();
  Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
  train_step(model, kfac, run, world()->rank(), 0, random);
  KfacState state = kfac.state().read_all();
  const std::string name = kfac.layers().front().name + ".g_inverse";
  state.tensors.erase(name);
  RankNet other = another_net();
  Preconditioner fresh(*other, run.kfac, distribution_of(run, world()));
  expect_config_error([&] { fresh.load(state); }, "has no " + name);
}

TEST(RankState, AnotherNumberOfRanksCanGoOn) {
  // The state of all ranks, loaded by each of them alone: the next step of one rank with the
  // averages of all, and its own batch, is the reference.
  RankRun run;
  run.algorithm = "owner-blocks";
  RankNet model = seeded_net();
  std::mt19937 random(1);
  Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
  for (std::int64_t step = 0; step < 2; ++step) {
    train_step(model, kfac, run, world()->rank(), step, random);
  }
  const KfacState state = on_all_ranks(kfac);
  const auto next_step = [&](bool other_work_before) {
    RankNet other = another_net();
    Preconditioner alone(*other, run.kfac);
    if (other_work_before) train_step(other, alone, run, /*rank=*/0, 60, random);
    alone.load(state);
    EXPECT_EQ(alone.counters().steps, 2);
    copy_parameters(model, other);
    train_step(other, alone, run, /*rank=*/0, 2, random);
    return flat_parameters(other);
  };
  const at::Tensor after = next_step(false);
  EXPECT_TRUE(same_on_all_ranks(after));
  EXPECT_TRUE(torch::equal(next_step(true), after));
  // The averages do matter: without them the step differs.
  RankNet without = another_net();
  Preconditioner fresh(*without, run.kfac);
  copy_parameters(model, without);
  train_step(without, fresh, run, /*rank=*/0, 2, random);
  EXPECT_FALSE(torch::equal(flat_parameters(without), after));
  // What all ranks averaged is what each had loaded: the state comes back bit for bit.
  RankNet last = another_net();
  Preconditioner again(*last, run.kfac);
  again.load(state);
  const KfacState back = again.state().read_all();
  for (const auto& [name, tensor] : back.tensors) {
    EXPECT_TRUE(torch::equal(tensor, state.tensors.at(name))) << name;
  }
}

TEST(RankState, CanBeSavedAtAnyMoment) {
  for (const char* moment : {"new", "forward", "backward", "discarded", "synchronized"}) {
    SCOPED_TRACE(moment);
    const std::string now = moment;
    RankRun run;
    run.algorithm = "owner-reduce";
    run.steps = 2;
    const at::Tensor expected = trained(run).back();
    RankNet model = seeded_net();
    std::mt19937 random(1);
    Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
    const bool batch_before = now == "forward" || now == "backward" || now == "discarded";
    if (batch_before) {
      const at::Tensor loss = rank_loss(model, rank_batch(world()->rank(), 77));
      if (now != "forward") loss.backward();
      if (now == "discarded") kfac.discard();
    }
    if (now == "synchronized") {
      rank_loss(model, rank_batch(world()->rank(), 0)).backward();
      kfac.synchronize();
    }
    const KfacState state = on_all_ranks(kfac);
    EXPECT_EQ(state.counters.steps, 0);
    RankNet other = another_net();
    Preconditioner fresh(*other, run.kfac, distribution_of(run, world()));
    fresh.load(state);
    copy_parameters(seeded_net(), other);
    for (std::int64_t step = 0; step < run.steps; ++step) {
      train_step(other, fresh, run, world()->rank(), step, random);
    }
    EXPECT_TRUE(torch::equal(flat_parameters(other), expected));
  }
}

TEST(RankState, SavingTakesTheMemoryOfOneFactorInItsOwnType) {
  // Each tensor that rank 0 does not keep is one message of its own size; nothing is kept.
  RankRun run;
  run.algorithm = "owner-precondition";
  RankNet model = seeded_net();
  std::mt19937 random(1);
  Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
  train_step(model, kfac, run, world()->rank(), 0, random);
  const KfacMemory before = kfac.memory();
  const Bytes sent = world()->traffic().payload;
  KfacStateStream stream = kfac.state();
  std::int64_t largest = 0;
  std::int64_t all = 0;
  for (std::size_t i = 0; i < stream.tensors().size(); ++i) {
    const Bytes at = world()->traffic().payload;
    const at::Tensor tensor = stream.read(i);
    largest = std::max(largest, (world()->traffic().payload - at).value());
    all += static_cast<std::int64_t>(tensor_bytes(stream.tensors()[i]));
  }
  EXPECT_LE((world()->traffic().payload - sent).value(), all);
  EXPECT_LE(largest, 73 * 74 / 2 * 4);  // A of `third`: 72 inputs and the bias, in 32 bits
  EXPECT_EQ(kfac.memory().factors, before.factors);
  EXPECT_EQ(kfac.memory().inverses, before.inverses);
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
