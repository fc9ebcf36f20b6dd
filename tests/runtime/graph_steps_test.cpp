// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/graph_steps.h"

#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/kfac_fixture.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;

constexpr int kSteps = 12;

// A network that is trained on what `batch` holds at the moment.
struct GraphTraining {
  explicit GraphTraining(const KfacOptions& options,
                         const std::shared_ptr<Logger>& logger = nullptr)
      : kfac(*model, options, logger),
        optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)) {}

  void step() {
    ++calls;
    optimizer.zero_grad();
    loss_of(model, batch).backward();
    kfac.step(0.05);
    optimizer.step();
  }

  TinyNet model;
  Batch batch = random_batch(6);
  Preconditioner kfac;
  torch::optim::SGD optimizer;
  int calls = 0;
};

void copy_parameters(const TinyNet& from, const TinyNet& to) {
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> values = from->parameters();
  std::vector<at::Tensor> targets = to->parameters();
  for (std::size_t i = 0; i < values.size(); ++i) targets[i].copy_(values[i]);
}

// Takes the same batch to both and trains a step; `replayed` through its recorded steps.
void step_both(GraphTraining& plain, GraphTraining& replayed, GraphSteps& steps) {
  const Batch next = random_batch(6);
  for (GraphTraining* one : {&plain, &replayed}) {
    one->batch.images.copy_(next.images);
    one->batch.labels.copy_(next.labels);
  }
  plain.step();
  steps.run();
}

void expect_same_parameters(const GraphTraining& left, const GraphTraining& right) {
  const std::vector<at::Tensor> a = left.model->parameters();
  const std::vector<at::Tensor> b = right.model->parameters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-9, 1e-12)) << "parameter " << i;
  }
}

struct Intervals {
  std::int64_t factors;
  std::int64_t inverses;
  // One for each kind of step that comes once, two for others: as it is, and to be recorded.
  int calls_on_gpu;
};

class GraphStepsOf : public testing::TestWithParam<Intervals> {};

TEST_P(GraphStepsOf, TrainAsStepsDo) {
  torch::manual_seed(3);
  const KfacOptions options{.factor_interval = GetParam().factors,
                            .inverse_interval = GetParam().inverses};
  GraphTraining plain(options);
  GraphTraining replayed(options);
  copy_parameters(plain.model, replayed.model);
  GraphSteps steps(replayed.kfac, [&] { replayed.step(); });
  for (int step = 0; step < kSteps; ++step) step_both(plain, replayed, steps);
  expect_same_parameters(plain, replayed);
  EXPECT_EQ(replayed.calls, on_cuda() ? GetParam().calls_on_gpu : kSteps);
  const KfacCounters expected = plain.kfac.counters();
  const KfacCounters counted = replayed.kfac.counters();
  EXPECT_EQ(counted.steps, kSteps);
  EXPECT_EQ(counted.factor_updates, expected.factor_updates);
  EXPECT_EQ(counted.inverse_updates, expected.inverse_updates);
  EXPECT_EQ(counted.nonfinite_gradients, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Intervals, GraphStepsOf,
    // The first inverses differ from later ones if averages have changed before those.
    testing::Values(Intervals{1, 1, 2}, Intervals{2, 4, 7}, Intervals{1, 3, 5}, Intervals{3, 1, 4},
                    // Inverses without factors, of old averages or new ones.
                    Intervals{2, 3, 8}, Intervals{3, 2, 10}, Intervals{4, 3, 8}),
    [](const auto& one) { return fmt::format("{}_{}", one.param.factors, one.param.inverses); });

TEST(GraphSteps, CountWhatWentWrongInReplayedOnes) {
  const CapturedLog log;
  GraphTraining training({.factor_interval = 1, .inverse_interval = 1}, log.logger());
  GraphSteps steps(training.kfac, [&] { training.step(); });
  for (int step = 0; step < 4; ++step) steps.run();
  EXPECT_EQ(training.kfac.counters().nonfinite_gradients, 0);
  const at::Tensor good = training.batch.images.clone();
  training.batch.images.fill_(std::numeric_limits<double>::quiet_NaN());
  for (int step = 0; step < 2; ++step) steps.run();
  const KfacCounters bad = training.kfac.counters();
  EXPECT_EQ(bad.nonfinite_gradients, 2);
  EXPECT_EQ(bad.nonfinite_factors, 12) << "two of each of three layers, twice";
  EXPECT_EQ(bad.steps, 6);
  EXPECT_FALSE(log.lines().empty());
  training.batch.images.copy_(good);
  steps.run();
  EXPECT_EQ(training.kfac.counters().nonfinite_gradients, 2);
}

TEST(GraphSteps, AreRecordedAgainWhenForgotten) {
  double rate = 0;
  GraphTraining training({.factor_interval = 1, .inverse_interval = 1});
  GraphSteps steps(training.kfac, [&] {
    static_cast<torch::optim::SGDOptions&>(training.optimizer.param_groups()[0].options()).lr(rate);
    training.step();
  });
  const std::vector<at::Tensor> start = clones(training.model->parameters());
  for (int step = 0; step < 3; ++step) steps.run();
  EXPECT_TRUE(same_bits(clones(training.model->parameters()), start)) << "the rate is 0";
  rate = 0.1;
  steps.forget();
  for (int step = 0; step < 3; ++step) steps.run();
  EXPECT_FALSE(same_bits(clones(training.model->parameters()), start));
}

TEST(GraphSteps, HaveNoTrace) {
  GraphTraining training({.trace = true});
  expect_config_error([&] { GraphSteps(training.kfac, [] {}); }, "options.trace");
}

}  // namespace
}  // namespace spdkfac
