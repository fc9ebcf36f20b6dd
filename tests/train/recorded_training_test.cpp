// SPDX-License-Identifier: Apache-2.0
// Recorded steps of the program beside steps as they are; on the CPU both are queued each time.
#include "spdkfac/train/recorded_training.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "spdkfac/data/batches.h"
#include "spdkfac/runtime/presets.h"
#include "spdkfac/train/learning_rate.h"
#include "spdkfac/train/train_state.h"
#include "support/device.h"

namespace spdkfac::train {
namespace {

constexpr std::int64_t kRecordedSteps = 24;
constexpr double kRounding = 1e-4;  // of 32 bits, over these steps

TrainOptions recorded_options(const std::function<void(TrainOptions&)>& change) {
  TrainOptions options;
  options.width = 0.125;
  options.data = "synthetic";
  options.synthetic_examples = 4 * kRecordedSteps;
  options.input = {1, 28, 28};
  options.classes = 10;
  options.batch = 4;
  options.epochs = 1;
  options.learning_rate = 0.01;
  options.kfac.factor_interval = 2;
  options.kfac.inverse_interval = 4;
  options.device = support::on_cuda() ? "cuda" : "cpu";
  change(options);
  return options;
}

Training training_of(const TrainOptions& options) {
  Training training =
      make_training(options, std::make_unique<Ranks>(options.ranks, support::test_device()),
                    [](const std::string&) {});
  training.model->train();
  return training;
}

data::Batches batches_of(const Training& training) {
  return {training.train, {.batch = 4, .shuffle = true, .seed = 1, .device = training.device}};
}

// Step and its rate, which falls to zero along half a cosine.
template <class Step>
void train(const data::Batches& batches, std::int64_t steps, const Step& step) {
  const LearningRate rate{.base = 0.01,
                          .schedule = Schedule::kCosine,
                          .warmup_steps = 3,
                          .total_steps = kRecordedSteps};
  for (std::int64_t k = 0; k < steps; ++k) step(batches.at(k), learning_rate_at(rate, k));
}

struct RunCase {
  std::string name;
  std::function<void(TrainOptions&)> change;
  std::int64_t steps = kRecordedSteps;
};

class RecordedTrainingOf : public testing::TestWithParam<RunCase> {};

TEST_P(RecordedTrainingOf, TrainsAsStepsDo) {
  const TrainOptions options = recorded_options(GetParam().change);
  Training plain = training_of(options);
  at::Tensor expected = torch::zeros({}, support::test_options(at::kDouble));
  train(batches_of(plain), GetParam().steps, [&](const data::Batch& batch, double rate) {
    plain.model->zero_grad();
    const at::Tensor loss =
        at::cross_entropy_loss(plain.model->forward(batch.images), batch.labels);
    loss.backward();
    if (plain.kfac) plain.kfac->step(rate, momentum_of(*plain.optimizer));
    plain.update(rate);
    expected.add_(loss.detach(), batch.size());
  });

  Training training = training_of(options);
  ASSERT_FALSE(RecordedTraining::obstacle(training));
  const at::Tensor sum = torch::zeros({}, support::test_options(at::kDouble));
  RecordedTraining recorded(training, sum);
  train(batches_of(training), GetParam().steps,
        [&](const data::Batch& batch, double rate) { recorded.step(batch, rate); });

  EXPECT_NEAR(sum.item<double>(), expected.item<double>(), kRounding * expected.item<double>());
  const NamedTensors of_model = model_tensors(training);
  const NamedTensors wanted = model_tensors(plain);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(torch::allclose(of_model[i].second, wanted[i].second, 10 * kRounding, kRounding))
        << wanted[i].first;
  }
  const NamedTensors state = optimizer_tensors(training.optimizers(), model_parameters(training));
  const NamedTensors wanted_state = optimizer_tensors(plain.optimizers(), model_parameters(plain));
  ASSERT_EQ(state.size(), wanted_state.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].first, wanted_state[i].first);
    if (state[i].first.ends_with(".step")) {
      EXPECT_TRUE(state[i].second.equal(wanted_state[i].second)) << state[i].first;
    }
  }
  if (!training.kfac) return;
  EXPECT_EQ(training.kfac->counters().steps, GetParam().steps);
  EXPECT_EQ(training.kfac->counters().factor_updates, plain.kfac->counters().factor_updates);
  EXPECT_EQ(training.kfac->counters().inverse_updates, plain.kfac->counters().inverse_updates);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, RecordedTrainingOf,
    testing::Values(RunCase{"sgd", [](TrainOptions& options) { options.algorithm = "sgd"; }},
                    RunCase{"adam",
                            [](TrainOptions& options) {
                              options.algorithm = "sgd";
                              options.optimizer = BaseOptimizer::kAdam;
                              options.weight_decay = 0.01;
                            }},
                    RunCase{"kfac_with_kl_clip", [](TrainOptions&) {}},
                    RunCase{"kfac_of_a_preset",
                            [](TrainOptions& options) { options.kfac = kfac_preset("cnn"); }},
                    RunCase{"kfac_over_adamw",
                            [](TrainOptions& options) {
                              options.optimizer = BaseOptimizer::kAdamW;
                              options.kfac = kfac_preset("cnn");
                              set_graft(options.kfac, Graft::kAdam);
                            }},
                    RunCase{"adamw_for_others",
                            [](TrainOptions& options) {
                              options.model = "resnet20";
                              options.input = {3, 32, 32};
                              options.others = BaseOptimizer::kAdamW;
                              options.others_rate = 0.001;
                            },
                            // Adam's steps soon make much of roundings after batch norms.
                            /*steps=*/6}),
    [](const auto& one) { return one.param.name; });

TEST(RecordedTraining, SaysWhyStepsCannotBeRecorded) {
  const Training training =
      training_of(recorded_options([](TrainOptions& options) { options.kfac.lm_damping = true; }));
  const std::optional<std::string> obstacle = RecordedTraining::obstacle(training);
  ASSERT_TRUE(obstacle);
  EXPECT_NE(obstacle->find("lm_damping"), std::string::npos) << *obstacle;
}

}  // namespace
}  // namespace spdkfac::train
