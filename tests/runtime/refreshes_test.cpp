// SPDX-License-Identifier: Apache-2.0
// Adaptive intervals: which layers renew their inverses, when, and on all ranks alike.
#include "spdkfac/runtime/refreshes.h"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "runtime/thread_net.h"
#include "runtime/thread_resume.h"
#include "spdkfac/runtime/damping_trial.h"
#include "spdkfac/runtime/step_control.h"
#include "spdkfac/runtime/step_meter.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

constexpr double kGrowth = 0.3;  // of the input of the layer that moves, in a step

// The layers do not touch each other, and their losses are linear, so that G never changes.
struct TwoBranchesImpl : torch::nn::Module {
  TwoBranchesImpl() {
    still = register_module("still", torch::nn::Linear(3, 2));
    moving =
        register_module("moving", torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false)));
    to(at::kDouble);
  }
  at::Tensor loss(const at::Tensor& input, double scale) {
    return still(input).mean() + moving(input * scale).mean();
  }
  torch::nn::Linear still = nullptr;
  torch::nn::Linear moving = nullptr;
};
TORCH_MODULE(TwoBranches);

double scale_at(std::int64_t step) { return 1 + kGrowth * static_cast<double>(step); }

// The steps in which each layer renews its inverses.
std::map<std::string, std::set<std::int64_t>> renewals(const KfacOptions& options,
                                                       std::int64_t steps, KfacCounters* counters) {
  torch::manual_seed(3);
  TwoBranches model;
  Preconditioner kfac(*model, options);
  const at::Tensor input = torch::randn({8, 3}, at::kDouble);
  std::map<std::string, std::set<std::int64_t>> found;
  for (std::int64_t step = 0; step < steps; ++step) {
    model->zero_grad();
    model->loss(input, scale_at(step)).backward();
    kfac.step(0);
    const KfacState state = kfac.state().read_all();
    for (const char* layer : {"still", "moving"}) {
      const at::Tensor record = state.tensors.at(std::string(layer) + ".refresh");
      found[layer].insert(static_cast<std::int64_t>(record[0].item<double>()));
    }
  }
  *counters = kfac.counters();
  return found;
}

KfacOptions adaptive_options() {
  KfacOptions options;
  options.damping = 0.1;
  options.kl_clip = 0;
  options.running_average = 0;  // the average is the last factor
  options.interval = Refresh::kAdaptive;
  options.inverse_interval = 12;
  return options;
}

TEST(Refreshes, ALayerThatMovesIsRenewedOftenAndOneThatDoesNotAtItsBound) {
  constexpr std::int64_t kSteps = 40;
  // By hand: the diagonal of A grows with the square of the scale. What is measured in a step
  // counts from the second one behind.
  std::set<std::int64_t> expected = {0};
  const double threshold = 0.1;
  std::map<std::int64_t, double> measured;
  double change = 0;
  std::int64_t renewed = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    if (step == 0 || change > threshold || step - renewed >= 12) {
      renewed = step;
      expected.insert(step);
      if (step > 0) measured.erase(step - 1);
      change = 0;
    } else if (measured.contains(step - 1)) {
      change = measured[step - 1];
    }
    const double grown = scale_at(step) / scale_at(renewed);
    measured[step] = grown * grown - 1;
  }
  KfacCounters counters;
  const auto found = renewals(adaptive_options(), kSteps, &counters);
  EXPECT_EQ(found.at("moving"), expected);
  EXPECT_EQ(found.at("still"), (std::set<std::int64_t>{0, 12, 24, 36}));
  EXPECT_GT(expected.size(), 10U);
  const auto renewed_inverses =
      static_cast<std::int64_t>(2 * (expected.size() + found.at("still").size()));
  EXPECT_EQ(counters.inverse_updates, renewed_inverses);
  // In each step with new inverses the other layer is skipped, unless it is renewed, too.
  std::set<std::int64_t> both = expected;
  both.insert({0, 12, 24, 36});
  EXPECT_EQ(counters.inverses_skipped,
            static_cast<std::int64_t>(4 * both.size()) - renewed_inverses);
}

TEST(Refreshes, AThresholdOfZeroRenewsAllThatMovesAndALargeOneNothing) {
  KfacOptions options = adaptive_options();
  options.inverse_interval = 1000;
  options.refresh_change = 1e6;
  KfacCounters counters;
  EXPECT_EQ(renewals(options, 10, &counters).at("moving"), (std::set<std::int64_t>{0}));
  options.refresh_change = 0;
  EXPECT_THAT(renewals(options, 10, &counters).at("moving"), ::testing::SizeIs(4));  // 0, 3, 6, 9
  EXPECT_THAT(renewals(options, 10, &counters).at("still"), ::testing::SizeIs(1));
}

TEST(Refreshes, SkippedInversesAreInTheTrace) {
  KfacOptions options = adaptive_options();
  options.trace = true;
  TwoBranches model;
  Preconditioner kfac(*model, options);
  const at::Tensor input = torch::randn({8, 3}, at::kDouble);
  for (std::int64_t step = 0; step < 4; ++step) {
    model->zero_grad();
    model->loss(input, scale_at(step)).backward();
    kfac.step(0);
  }
  std::ostringstream text;
  StepMeter(kfac).trace().write_perfetto(text);
  EXPECT_THAT(text.str(), HasSubstr("inverse skipped still"));
  EXPECT_THAT(text.str(), HasSubstr("inverse moving"));
}

KfacOptions thread_options() {
  KfacOptions options;
  options.damping = 0.1;
  options.interval = Refresh::kAdaptive;
  options.factor_interval = 2;
  options.inverse_interval = 12;
  options.refresh_change = 0.07;
  return options;
}

TEST_F(ThreadRanks, EqualOneRankWithAdaptiveIntervals) {
  for (const AlgorithmInfo& info : named_algorithms()) {
    SCOPED_TRACE(info.name);
    ThreadRun run{.algorithm = info.name, .kfac = thread_options(), .steps = 25};
    run.before_step = [&](Preconditioner& kfac, std::size_t step) {
      if (step != 24 || info.name == "sgd") return;
      const KfacCounters counters = kfac.counters();
      if (kfac.ranks() == 1) {
        EXPECT_GT(counters.inverses_skipped, 0);
      }
      EXPECT_GT(counters.inverse_updates + counters.inverses_skipped, 0);
    };
    expect_ranks_equal_one_rank(run, 2);
  }
}

TEST_F(ThreadRanks, EqualOneRankWithAdaptiveIntervalsWhenPlansAreMadeAgain) {
  for (const char* algorithm : {"owner-reduce", "owner-precondition", "owner-blocks"}) {
    SCOPED_TRACE(algorithm);
    ThreadRun run{
        .algorithm = algorithm, .kfac = thread_options(), .profile_steps = 2, .steps = 20};
    run.kfac.factor_interval = 1;
    expect_ranks_equal_one_rank(run, 3);
  }
}

TEST_F(ThreadRanks, AdaptiveRunsGoOnBitForBit) {
  for (const char* algorithm : {"spd-kfac", "owner-reduce", "owner-precondition"}) {
    for (const std::size_t stop : {1, 3, 4, 5, 6, 9, 16}) {
      SCOPED_TRACE(std::string(algorithm) + " from " + std::to_string(stop));
      KfacOptions options = thread_options();
      options.factor_interval = stop % 2 == 0 ? 2 : 1;
      options.inverse_interval = 12;
      expect_resumes(algorithm, options, stop, nullptr);
    }
  }
}

// --- options that change while training ---

TEST_F(ThreadRanks, ChangedOptionsEqualThoseOfOneRank) {
  for (const char* algorithm : {"d-kfac", "spd-kfac", "owner-precondition", "auto"}) {
    SCOPED_TRACE(algorithm);
    ThreadRun run{.algorithm = algorithm, .steps = 14};
    run.before_step = [](Preconditioner& kfac, std::size_t step) {
      if (step == 3) kfac.change({.damping = 0.5, .kl_clip = 0.01});
      if (step == 5) kfac.change({.factor_interval = 2, .inverse_interval = 4});
      if (step == 10) kfac.change({.damping = 0.05, .factor_interval = 1, .inverse_interval = 1});
    };
    expect_ranks_equal_one_rank(run, 2);
  }
}

TEST_F(ThreadRanks, ChangedOptionsAreSaved) {
  KfacOptions options = thread_options();
  for (const Refresh refresh : {Refresh::kFixed, Refresh::kAdaptive}) {
    options.interval = refresh;
    expect_resumes("spd-kfac", options, 11, [](Preconditioner& kfac, std::size_t step) {
      if (step == 4) kfac.change({.damping = 1.0 / 3, .kl_clip = 0.01});
      if (step == 7) kfac.change({.factor_interval = 1, .inverse_interval = 3});
    });
  }
}

TEST_F(ThreadRanks, ChangesThatDifferAreAnErrorOnAll) {
  EXPECT_THAT(config_error([] {
                run_ranks(2, [](const std::shared_ptr<Communicator>& communicator) {
                  Distribution distribution;
                  distribution.communicator = communicator;
                  distribution.plans = PlanForCosts{thread_costs(2), preset("spd-kfac")};
                  ThreadNet model;
                  Preconditioner kfac(*model, {}, distribution);
                  kfac.change({.damping = 0.1 + communicator->rank()});
                });
              }),
              HasSubstr("the changed options"));
}

TEST(ChangedOptions, AreValidated) {
  TwoBranches model;
  Preconditioner kfac(*model, KfacOptions{});
  const auto error_of = [&](const KfacChanges& changes) {
    return config_error([&] { kfac.change(changes); });
  };
  EXPECT_THAT(error_of({.damping = -1}), HasSubstr("damping=-1"));
  EXPECT_THAT(error_of({.kl_clip = NAN}), HasSubstr("kl_clip=nan"));
  EXPECT_THAT(error_of({.inverse_interval = 0}), HasSubstr("inverse_interval=0"));
  EXPECT_EQ(digest(kfac.options()), digest(KfacOptions{}));
  model->loss(torch::randn({4, 3}, at::kDouble), 1).backward();
  EXPECT_THAT(error_of({.inverse_interval = 2}),
              HasSubstr("between a forward pass and its step()"));
  kfac.change({.damping = 0.3});
  EXPECT_EQ(kfac.options().damping, 0.3);
}

TEST(ChangedOptions, OfAnotherTextAreRefused) {
  const KfacOptions first;
  KfacOptions now;
  now.damping = 0.1;
  now.inverse_interval = 7;
  const std::string text = digest_with_changes(first, now);
  EXPECT_EQ(digest(options_of_digest(first, text)), digest(now));
  EXPECT_EQ(digest_with_changes(first, first), digest(first));
  EXPECT_THAT(config_error([&] { options_of_digest(now, text); }), HasSubstr("other options"));
  for (const char* more : {" 1", "x", " nan"}) {
    EXPECT_THAT(config_error([&] { options_of_digest(first, text + more); }),
                HasSubstr("cannot be read"));
  }
  EXPECT_THAT(
      config_error([&] { options_of_digest(first, digest(first) + " changed_to=-1 0.1 1 1"); }),
      HasSubstr("damping=-1"));
}

// --- damping that follows the loss ---

// One example, a Linear layer with one output and no bias, ½(w·x − y)²: everything by hand.
struct ByHand {
  double w0, w1, damping;
  static constexpr double kX0 = 1.5, kX1 = -0.5, kY = 2;
  double square() const { return kX0 * kX0 + kX1 * kX1; }
  double residual() const { return w0 * kX0 + w1 * kX1 - kY; }
  double loss() const { return 0.5 * residual() * residual(); }
  // A step with plain damping; returns the model's change of the loss.
  double step(double rate) {
    const double g = residual();
    const double v = g / ((g * g + damping) * (square() + damping));  // V = v·x
    w0 -= rate * v * kX0;
    w1 -= rate * v * kX1;
    const double inner = v * g * square();
    return -rate * inner + 0.5 * rate * rate * inner;
  }
};

TEST(LmDamping, FollowsTheRatioOfTheLossAndItsModel) {
  std::set<int> directions;  // of the damping: all three must occur
  for (const double rate : {0.05, 0.3, 0.5, 1.0, 1.9}) {
    for (const double start : {1e-3, 0.1, 1.0, 10.0}) {
      SCOPED_TRACE(testing::Message() << "rate " << rate << ", damping " << start);
      ByHand hand{.w0 = 0.2, .w1 = 0.4, .damping = start};
      torch::nn::Linear layer(torch::nn::LinearOptions(2, 1).bias(false));
      layer->to(at::kDouble);
      {
        const torch::NoGradGuard no_grad;
        layer->weight.copy_(torch::tensor({{hand.w0, hand.w1}}, at::kDouble));
      }
      KfacOptions options;
      options.damping = start;
      options.lm_damping = true;
      options.damping_mode = Damping::kPlain;
      options.running_average = 0;
      options.kl_clip = 0;
      Preconditioner kfac(*layer, options);
      const at::Tensor x = torch::tensor({{ByHand::kX0, ByHand::kX1}}, at::kDouble);
      const auto loss_of_layer = [&] { return (layer(x) - ByHand::kY).square().sum() * 0.5; };
      for (int step = 1; step <= 10; ++step) {
        const double before = hand.loss();
        const double predicted = hand.step(rate);
        layer->zero_grad();
        const at::Tensor loss = loss_of_layer();
        loss.backward();
        kfac.step(rate);
        const torch::NoGradGuard no_grad;
        layer->weight.sub_(layer->weight.grad(), rate);
        ASSERT_EQ(StepControl(kfac).judges_damping(), step % 5 == 0);
        if (step % 5 != 0) continue;
        const double rho = (hand.loss() - before) / predicted;
        const double power = std::pow(0.9, 5);
        directions.insert(rho > 0.75 ? -1 : rho < 0.25 ? 1 : 0);
        hand.damping *= rho > 0.75 ? power : rho < 0.25 ? 1 / power : 1;
        StepControl(kfac).judge_damping(loss.item<double>(), loss_of_layer().item<double>());
        EXPECT_NEAR(kfac.options().damping, hand.damping, 1e-12 * hand.damping);
      }
      EXPECT_NEAR(layer->weight[0][0].item<double>(), hand.w0, 1e-9);
    }
  }
  EXPECT_EQ(directions, (std::set<int>{-1, 0, 1}));
}

TEST(LmDamping, StaysWithinBoundsAndRisesWhereTheLossIsNotFinite) {
  using runtime::damping_after;
  EXPECT_EQ(damping_after(1e-10, -1, -1), 1e-10);
  EXPECT_EQ(damping_after(1e10, 1, -1), 1e10);
  EXPECT_EQ(damping_after(2, 0, 0), 2);
  EXPECT_EQ(damping_after(2, -0.5, -1), 2);
  EXPECT_GT(damping_after(2, NAN, -1), 2);
  EXPECT_GT(damping_after(2, INFINITY, -1), 2);
}

TEST_F(ThreadRanks, EqualOneRankWithDampingThatFollowsTheLoss) {
  for (const char* algorithm : {"d-kfac", "spd-kfac", "owner-reduce", "owner-precondition"}) {
    SCOPED_TRACE(algorithm);
    ThreadRun run{.algorithm = algorithm, .steps = 16};
    run.kfac.lm_damping = true;
    run.before_step = [](Preconditioner& kfac, std::size_t step) {
      if (step == 15) {
        EXPECT_NE(kfac.options().damping, 0.1);
      }
    };
    expect_ranks_equal_one_rank(run, 2);
    KfacOptions options = run.kfac;
    expect_resumes(algorithm, options, 12, nullptr);
  }
}

TEST(LmDamping, NeedsTheLossAndNoGrafting) {
  KfacOptions options;
  options.lm_damping = true;
  TwoBranches model;
  Preconditioner kfac(*model, options);
  const at::Tensor input = torch::randn({4, 3}, at::kDouble);
  EXPECT_THAT(config_error([&] { StepControl(kfac).judge_damping(1, 1); }),
              HasSubstr("no step to judge"));
  const auto step = [&] {
    model->zero_grad();
    model->loss(input, 1).backward();
    kfac.step(0.1);
  };
  for (int i = 0; i < 5; ++i) step();
  EXPECT_THAT(config_error(step), HasSubstr("lm_damping needs the loss"));
  options.graft = Graft::kSgd;
  options.kl_clip = 0;
  EXPECT_THAT(config_error([&] { validate(options); }), HasSubstr("graft=none"));
}

}  // namespace
}  // namespace spdkfac
