// SPDX-License-Identifier: Apache-2.0
// Who averages the gradients, and what may happen to them before a step.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/ranks_fixture.h"
#include "spdkfac/runtime/graph_steps.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

constexpr std::int64_t kSteps = 4;

// As DistributedDataParallel does in the backward pass.
void average_gradients(RankNet& model) {
  for (const at::Tensor& parameter : model->parameters()) {
    world()->all_reduce_async(parameter.grad(), "gradient").wait();
    parameter.grad().mul_(1.0 / world()->size());
  }
}

void scale_gradients(RankNet& model, double scale) {
  for (const at::Tensor& parameter : model->parameters()) parameter.grad().mul_(scale);
}

// Trains with `between` called between the backward pass and the step.
at::Tensor trained_with(const RankRun& run, bool send_gradients,
                        const std::function<void(RankNet&, Preconditioner&)>& between) {
  RankNet model = seeded_net(run.type);
  Distribution distribution = distribution_of(run, world());
  distribution.send_gradients = send_gradients;
  Preconditioner kfac(*model, run.kfac, distribution);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    model->zero_grad();
    rank_loss(model, rank_batch(world()->rank(), step, run.type)).backward();
    between(model, kfac);
    kfac.step(kRankRate);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), kRankRate);
  }
  return flat_parameters(model);
}

TEST(Gradients, AveragedByTheCallerYieldTheSameParameters) {
  for (const std::string& algorithm : all_algorithms(/*first_order=*/true)) {
    SCOPED_TRACE(algorithm);
    RankRun run;
    run.algorithm = algorithm;
    run.kfac.inverse_interval = run.kfac.factor_interval = algorithm == "spd-kfac" ? 2 : 1;
    const at::Tensor expected = trained_with(run, true, [](RankNet&, Preconditioner&) {});
    const at::Tensor after =
        trained_with(run, false, [](RankNet& model, Preconditioner&) { average_gradients(model); });
    EXPECT_TRUE(same_on_all_ranks(after));
    EXPECT_LE(relative_difference(after, expected), world()->size() <= 2 ? 0 : 1e-4);
  }
}

TEST(Gradients, MayBeChangedOnceTheyAreSynchronized) {
  for (const char* algorithm : {"spd-kfac", "d-kfac", "naive", "optimal-fusion", "owner-reduce"}) {
    SCOPED_TRACE(algorithm);
    RankRun run;
    run.algorithm = algorithm;
    run.kfac.kl_clip = 0;  // which would undo the change
    const at::Tensor expected = trained_with(run, false, [](RankNet& model, Preconditioner&) {
      average_gradients(model);
      scale_gradients(model, 0.5);
    });
    const at::Tensor after = trained_with(run, true, [](RankNet& model, Preconditioner& kfac) {
      kfac.synchronize();
      scale_gradients(model, 0.5);
    });
    EXPECT_LE(relative_difference(after, expected), world()->size() == 2 ? 0 : 1e-4);
  }
}

TEST(Gradients, ChangedAfterTheyHaveLeftAreAnError) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank sends nothing";
  RankRun run;
  run.algorithm = "spd-kfac";
  EXPECT_THAT(config_error([&] {
                trained_with(run, true,
                             [](RankNet& model, Preconditioner&) { scale_gradients(model, 0.5); });
              }),
              HasSubstr("call synchronize() first"));
}

TEST(Gradients, ThatOwnersKeepCannotBeSynchronized) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank sends nothing";
  RankRun run;
  run.algorithm = "owner-precondition";
  EXPECT_THAT(config_error([&] {
                trained_with(run, true, [](RankNet&, Preconditioner& kfac) { kfac.synchronize(); });
              }),
              HasSubstr("leaves averaged gradients with the owners"));
}

TEST(Gradients, StepsThatExchangeThemAreNotRecorded) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank may record its steps";
  RankNet model = seeded_net(at::kDouble);
  Preconditioner kfac(*model, {}, distribution_of({}, world()));
  expect_config_error([&] { GraphSteps(kfac, [] {}); },
                      fmt::format("steps of {} ranks cannot run as CUDA graphs", world()->size()));
}

}  // namespace
}  // namespace spdkfac
