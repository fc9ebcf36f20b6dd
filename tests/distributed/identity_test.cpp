// SPDX-License-Identifier: Apache-2.0
// Every schedule yields the same parameters, and P ranks those of one rank with the joined batch.
#include <iostream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "distributed/ranks_fixture.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

// Bit for bit where the order of summation cannot differ: up to two ranks.
void expect_agreement(const RankRun& run, const std::vector<at::Tensor>& reference) {
  SCOPED_TRACE(run.algorithm);
  const std::vector<at::Tensor> after = trained(run);
  EXPECT_TRUE(same_on_all_ranks(after.back()));
  const double first = relative_difference(after.front(), reference.front());
  const double last = relative_difference(after.back(), reference.back());
  if (world()->size() <= 2) {
    EXPECT_EQ(first, 0);
    EXPECT_EQ(last, 0);
  } else {
    EXPECT_LE(first, 1e-6);
    EXPECT_LE(last, 1e-4);
  }
  if (world()->rank() == 0 && last > 0) {
    std::cout << fmt::format("{}: relative difference {:.1e} after one step, {:.1e} after {}\n",
                             run.algorithm, first, last, run.steps);
  }
}

TEST(Identity, EveryAlgorithmYieldsTheParametersOfDKfac) {
  const RankRun reference;
  const std::vector<at::Tensor> expected = trained(reference);
  EXPECT_TRUE(same_on_all_ranks(expected.back()));
  for (const std::string& algorithm : all_algorithms()) {
    RankRun run = reference;
    run.algorithm = algorithm;
    expect_agreement(run, expected);
  }
}

TEST(Identity, HoldsInDoublePrecision) {
  RankRun reference;
  reference.type = at::kDouble;
  reference.steps = 4;
  const std::vector<at::Tensor> expected = trained(reference);
  for (const char* algorithm : {"spd-kfac", "owner-reduce", "owner-blocks", "auto"}) {
    RankRun run = reference;
    run.algorithm = algorithm;
    expect_agreement(run, expected);
  }
}

TEST(Identity, HoldsWhenFactorsAndInversesAreRefreshedRarely) {
  RankRun reference;
  reference.kfac.factor_interval = 2;
  reference.kfac.inverse_interval = 4;
  const std::vector<at::Tensor> expected = trained(reference);
  for (const std::string& algorithm : all_algorithms()) {
    RankRun run = reference;
    run.algorithm = algorithm;
    expect_agreement(run, expected);
  }
}

TEST(Identity, HoldsWithSeveralBackwardPassesInAStep) {
  RankRun reference;
  reference.steps = 4;
  reference.backward_passes = 2;
  const std::vector<at::Tensor> expected = trained(reference);
  for (const char* algorithm : {"mpd-kfac", "naive", "spd-kfac", "auto"}) {
    RankRun run = reference;
    run.algorithm = algorithm;
    expect_agreement(run, expected);
  }
}

TEST(Identity, HoldsWhenPlansAreMadeAgainFromMeasuredTimes) {
  const std::vector<at::Tensor> expected = trained({});
  for (const char* algorithm : {"mpd-kfac", "spd-kfac", "owner-reduce", "owner-blocks", "auto"}) {
    RankRun run;
    run.algorithm = algorithm;
    run.profile_steps = 3;
    run.random_delays = true;
    run.kfac.trace = true;
    expect_agreement(run, expected);
  }
}

TEST(Identity, HoldsForEveryDampingAndConvention) {
  for (const Damping damping : {Damping::kPlain, Damping::kPi}) {
    for (const Convention convention : {Convention::kPaper, Convention::kKfacPytorch}) {
      RankRun reference;
      reference.steps = 2;
      reference.kfac.damping_mode = damping;
      reference.kfac.convention = convention;
      const std::vector<at::Tensor> expected = trained(reference);
      for (const char* algorithm : {"spd-kfac", "owner-reduce", "owner-precondition"}) {
        RankRun run = reference;
        run.algorithm = algorithm;
        expect_agreement(run, expected);
      }
    }
  }
}

// What one process makes of the batches of all ranks, joined.
std::vector<at::Tensor> trained_on_joined_batches(const RankRun& run) {
  RankNet model = seeded_net(run.type);
  Preconditioner kfac(*model, run.kfac);
  const bool second_order = preset(run.algorithm).second_order();
  std::vector<at::Tensor> after;
  for (std::int64_t step = 0; step < run.steps; ++step) {
    std::vector<at::Tensor> images;
    std::vector<at::Tensor> labels;
    for (int rank = 0; rank < world()->size(); ++rank) {
      const RankBatch batch = rank_batch(rank, step, run.type);
      images.push_back(batch.images);
      labels.push_back(batch.labels);
    }
    model->zero_grad();
    rank_loss(model, {at::cat(images), at::cat(labels)}).backward();
    if (second_order) kfac.step(kRankRate);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), kRankRate);
    after.push_back(flat_parameters(model));
  }
  return after;
}

TEST(Identity, RanksEqualOneProcessWithTheJoinedBatch) {
  for (const char* algorithm : {"sgd", "d-kfac", "spd-kfac", "owner-reduce", "auto"}) {
    SCOPED_TRACE(algorithm);
    RankRun run;
    run.algorithm = algorithm;
    run.kfac.precision =
        Precision::kFp32;  // tf32 would round sums of parts otherwise than the whole
    run.type = at::kDouble;
    const std::vector<at::Tensor> expected = trained_on_joined_batches(run);
    const std::vector<at::Tensor> after = trained(run);
    EXPECT_LE(relative_difference(after.back(), expected.back()), 1e-10);
    run.type = at::kFloat;
    EXPECT_LE(relative_difference(trained(run).front(), trained_on_joined_batches(run).front()),
              1e-5);
  }
}

TEST(Identity, GradientsOfPlainTrainingAreMeans) {
  RankRun run;
  run.algorithm = "sgd";
  RankNet model = seeded_net();
  Preconditioner sync(*model, run.kfac, distribution_of(run, world()));
  for (std::int64_t step = 0; step < 3; ++step) {
    std::vector<at::Tensor> expected;
    for (int rank = 0; rank < world()->size(); ++rank) {
      RankNet copy = seeded_net();
      rank_loss(copy, rank_batch(rank, step)).backward();
      for (std::size_t i = 0; i < copy->parameters().size(); ++i) {
        const at::Tensor part = copy->parameters()[i].grad() / world()->size();
        if (rank == 0) {
          expected.push_back(part);
        } else {
          expected[i] = expected[i] + part;
        }
      }
    }
    model->zero_grad();
    rank_loss(model, rank_batch(world()->rank(), step)).backward();
    sync.step(kRankRate);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(model->parameters()[i].grad(), expected[i], 1e-5, 1e-7)) << i;
    }
  }
}

}  // namespace
}  // namespace spdkfac
