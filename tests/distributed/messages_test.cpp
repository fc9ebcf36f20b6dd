// SPDX-License-Identifier: Apache-2.0
// What ranks send is what the plan says, in its order, to the byte.
#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "distributed/ranks_fixture.h"
#include "spdkfac/base/error.h"
#include "spdkfac/comm/agreement.h"
#include "spdkfac/comm/logged_communicator.h"
#include "spdkfac/plan/model_file.h"
#include "spdkfac/runtime/layer_order.h"
#include "spdkfac/runtime/step_meter.h"
#include "spdkfac/sim/simulator.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

struct Sent {
  Operation operation;
  std::int64_t elements;
  int root;
  bool operator==(const Sent&) const = default;
};

void PrintTo(const Sent& sent, std::ostream* out) {
  *out << fmt::format("{} of {} with root {}", operation_name(sent.operation), sent.elements,
                      sent.root);
}

// Each factor travels with its number of examples, which plans do not count.
std::int64_t counts_of(const Message& message) {
  return std::count_if(message.members.begin(), message.members.end(), is_factor);
}

std::vector<Sent> of_plan(const Plan& plan, const ModelSpec& model) {
  std::vector<Sent> sent;
  for (const Message& message : plan.messages) {
    const bool reduce = message.route.op == CollectiveOp::kReduce;
    sent.push_back({reduce ? Operation::kReduce : Operation::kAllReduce,
                    message.elements + counts_of(message), message.route.root.value_or(0)});
  }
  for (const ResultBroadcast& step : result_broadcasts(plan, model)) {
    sent.push_back({Operation::kBroadcast, step.elements, step.root});
  }
  return sent;
}

std::vector<Sent> of_records(const comm::LoggedCommunicator& recording) {
  std::vector<Sent> sent;
  for (const auto& record : recording.calls()) {
    sent.push_back({record.operation, record.elements, record.root});
  }
  return sent;
}

TEST(Messages, AreThoseOfThePlanInItsOrderWhateverTheDelays) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank sends nothing";
  for (const std::string& algorithm : all_algorithms(/*first_order=*/true)) {
    SCOPED_TRACE(algorithm);
    RankRun run;
    run.algorithm = algorithm;
    run.random_delays = true;
    run.kfac.factor_interval = 2;
    run.kfac.inverse_interval = 4;
    const auto recording = std::make_shared<comm::LoggedCommunicator>(world());
    ModelSpec seen;
    RankNet model = seeded_net();
    Preconditioner kfac(*model, run.kfac, distribution_of(run, recording, &seen));
    std::mt19937 random(static_cast<unsigned>(world()->rank()) + 17);
    const bool second_order = preset(run.algorithm).second_order();
    for (std::int64_t step = 0; step < 6; ++step) {
      recording->clear();
      const double before = recording->traffic().sent;
      train_step(model, kfac, run, world()->rank(), step, random);
      if (step == 0) continue;  // there the ranks also compare models and plans
      const StepKind kind = !second_order || step % 4 == 0 ? StepKind::kFull
                            : step % 2 == 0                ? StepKind::kFactors
                                                           : StepKind::kGradients;
      const Plan plan = kfac.plan(kind).value();
      EXPECT_EQ(of_records(*recording), of_plan(plan, seen)) << "step " << step;
      // The bytes that the simulator predicts.
      EXPECT_DOUBLE_EQ(recording->traffic().sent - before, bytes_per_worker(plan, seen));
    }
  }
}

TEST(Messages, LeaveDuringTheForwardAndBackwardPass) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank sends nothing";
  RankRun run;
  run.algorithm = "lw-none";  // one message for each factor
  const auto recording = std::make_shared<comm::LoggedCommunicator>(world());
  RankNet model = seeded_net();
  Preconditioner kfac(*model, run.kfac, distribution_of(run, recording));
  std::mt19937 random(1);
  train_step(model, kfac, run, world()->rank(), 0, random);
  recording->clear();
  const at::Tensor loss = rank_loss(model, rank_batch(world()->rank(), 1));
  // Every A that the plan sends before anything of the backward pass.
  const std::vector<Message> messages = kfac.plan()->messages;
  std::size_t of_forward = 0;
  while (messages[of_forward].members.front().kind == TensorKind::kFactorA) ++of_forward;
  EXPECT_GE(of_forward, 2U);
  EXPECT_EQ(recording->calls().size(), of_forward);
  loss.backward();
  EXPECT_EQ(recording->calls().size(), messages.size());
  kfac.step(kRankRate);
}

// Runs a step and expects all its messages to leave in the passes, or to wait for their end.
void expect_messages(RankNet& model, Preconditioner& kfac, comm::LoggedCommunicator& recording,
                     std::int64_t step, bool wait) {
  recording.clear();
  model->zero_grad();
  rank_loss(model, rank_batch(world()->rank(), step)).backward();
  const std::size_t sent = kfac.plan()->messages.size();
  EXPECT_EQ(recording.calls().size(), wait ? 0 : sent) << "step " << step;
  kfac.step(kRankRate);
  EXPECT_GE(recording.calls().size(), sent) << "step " << step;
}

TEST(Messages, WaitForTheStepWhileLayersAreTimed) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank sends nothing";
  RankRun run;
  run.algorithm = "lw-none";
  run.profile_steps = 2;
  const auto recording = std::make_shared<comm::LoggedCommunicator>(world());
  RankNet model = seeded_net();
  Preconditioner kfac(*model, run.kfac, distribution_of(run, recording));
  std::mt19937 random(1);
  train_step(model, kfac, run, world()->rank(), 0, random);
  for (std::int64_t step = 1; step < 4; ++step) {
    expect_messages(model, kfac, *recording, step, /*wait=*/step <= run.profile_steps);
  }
}

// Layers may be timed again in the middle of a run; steps in between do not count.
TEST(Messages, WaitAgainWhenLayersAreTimedAgain) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank sends nothing";
  RankRun run;
  run.algorithm = "lw-none";
  const auto recording = std::make_shared<comm::LoggedCommunicator>(world());
  RankNet model = seeded_net();
  Preconditioner kfac(*model, run.kfac, distribution_of(run, recording));
  EXPECT_THROW(StepMeter(kfac).time_layers(true), ConfigError);  // there is no plan yet
  std::mt19937 random(1);
  train_step(model, kfac, run, world()->rank(), 0, random);
  EXPECT_FALSE(kfac.model().layers.front().times.has_value());
  EXPECT_THROW(StepMeter(kfac).timed_steps(), ConfigError);
  const std::string plan = kfac.plan()->digest();
  for (std::int64_t step = 1; step < 5; ++step) {
    const bool timed = step % 2 == 1;
    StepMeter(kfac).time_layers(timed);
    expect_messages(model, kfac, *recording, step, /*wait=*/timed);
  }
  const TimedSteps timed = StepMeter(kfac).timed_steps();
  ASSERT_EQ(timed.model.layers.size(), kfac.model().layers.size());
  for (const LayerSpec& layer : timed.model.layers) {
    ASSERT_TRUE(layer.times.has_value()) << layer.name;
    EXPECT_GT(layer.times->backward, Seconds(0)) << layer.name;
    EXPECT_GT(layer.times->factor_g, Seconds(0)) << layer.name;
  }
  ASSERT_EQ(timed.slowness.size(), 2U);  // the steps 1 and 3
  std::string slowness;
  for (const std::vector<Slowness>& ranks : timed.slowness) {
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(world()->size()));
    for (const Slowness& rank : ranks) {
      EXPECT_GT(rank.passes, 0);
      EXPECT_GT(rank.inverses, 0);
      EXPECT_GT(rank.preconditioning, 0);
      slowness += fmt::format("{} {} {}, ", rank.passes, rank.inverses, rank.preconditioning);
    }
  }
  comm::require_same(*world(), "the times of layers", to_json(timed.model).dump() + slowness);
  EXPECT_EQ(kfac.plan()->digest(), plan);  // it is for predictions alone
}

TEST(Messages, OfTheBulkScheduleLeaveInTheStep) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank sends nothing";
  RankRun run;
  run.algorithm = "d-kfac";
  const auto recording = std::make_shared<comm::LoggedCommunicator>(world());
  RankNet model = seeded_net();
  Preconditioner kfac(*model, run.kfac, distribution_of(run, recording));
  std::mt19937 random(1);
  train_step(model, kfac, run, world()->rank(), 0, random);
  recording->clear();
  model->zero_grad();
  rank_loss(model, rank_batch(world()->rank(), 1)).backward();
  for (const auto& record : recording->calls()) {
    EXPECT_NE(record.what.find("gradient"), std::string::npos) << record.what;
  }
  kfac.step(kRankRate);
  EXPECT_EQ(recording->calls().size(), kfac.plan()->messages.size());
}

TEST(Messages, ALayerCalledMoreOftenThanInTheFirstStepIsAnError) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank sends nothing";
  RankRun run;
  run.algorithm = "lw-none";
  RankNet model = seeded_net();
  Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
  std::mt19937 random(1);
  train_step(model, kfac, run, world()->rank(), 0, random);
  rank_loss(model, rank_batch(world()->rank(), 1)).backward();
  try {
    rank_loss(model, rank_batch(world()->rank(), 2));
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "kfac: layer first was called 2 times in this step, but 1 times in the first one; "
                 "on several ranks its factor has already been sent: call it equally often in each "
                 "step");
  }
  kfac.discard();
}

TEST(Messages, RanksWithDifferentModelsStopWithAnError) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  torch::manual_seed(7);
  RankNet model(at::kFloat, world()->rank() == 0 ? 12 : 13);
  RankRun run;
  EXPECT_THAT(
      config_error([&] { Preconditioner(*model, run.kfac, distribution_of(run, world())); }),
      testing::HasSubstr(world()->rank() == 0 ? "third [12x72]" : "third [13x72]"));
}

TEST(Messages, RanksWithDifferentPlansStopWithAnError) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  RankNet model = seeded_net();
  RankRun run;
  run.algorithm = world()->rank() == 0 ? "spd-kfac" : "d-kfac";
  Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
  rank_loss(model, rank_batch(world()->rank(), 0)).backward();
  EXPECT_THROW(kfac.step(kRankRate), ConfigError);
}

TEST(Messages, APlanForAnotherNumberOfRanksIsAnError) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank has no plan";
  RankNet model = seeded_net();
  Distribution distribution = distribution_of({}, world());
  distribution.plans =
      CustomPlanner{[](const ModelSpec& spec, const RefreshIntervals& intervals, StepKind step) {
        return make_best_plan(spec, rank_costs(8), 8, preset("spd-kfac"), intervals, step);
      }};
  Preconditioner kfac(*model, {}, distribution);
  rank_loss(model, rank_batch(world()->rank(), 0)).backward();
  EXPECT_THROW(kfac.step(kRankRate), ConfigError);
  // Those that are known beforehand are refused at once.
  distribution.plans = PlanForCosts{rank_costs(8)};
  EXPECT_THROW(Preconditioner(*model, {}, distribution), ConfigError);
}

TEST(Messages, PlansAreMadeAgainWithTheTimesOfAllParts) {
  if (world()->size() == 1) GTEST_SKIP() << "one process has no plan";
  // Every rank inverts and preconditions all layers, or its own alone.
  for (const char* algorithm : {"d-kfac", "owner-precondition"}) {
    SCOPED_TRACE(algorithm);
    RankRun run;
    run.algorithm = algorithm;
    run.profile_steps = 2;
    RankNet model = seeded_net();
    ModelSpec seen;
    Preconditioner kfac(*model, run.kfac, distribution_of(run, world(), &seen));
    std::mt19937 random(1);
    for (std::int64_t step = 0; step < 5; ++step) {
      train_step(model, kfac, run, world()->rank(), step, random);
    }
    for (const LayerSpec& layer : seen.layers) {
      ASSERT_TRUE(layer.times.has_value()) << layer.name;
      EXPECT_GT(layer.times->backward, Seconds(0)) << layer.name;
      EXPECT_GT(layer.times->factor_a, Seconds(0)) << layer.name;
      for (const auto part :
           {&LayerTimes::precondition, &LayerTimes::inverse_a, &LayerTimes::inverse_g}) {
        const std::optional<Seconds>& time = *layer.times.*part;
        ASSERT_TRUE(time.has_value()) << layer.name;
        EXPECT_GT(*time, Seconds(0)) << layer.name;
        EXPECT_LT(*time, Seconds(1)) << layer.name;
      }
    }
  }
}

}  // namespace
}  // namespace spdkfac
