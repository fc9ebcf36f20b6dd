// SPDX-License-Identifier: Apache-2.0
// The whole step on several ranks that are threads of this process.
#include "runtime/thread_ranks.h"

#include <array>
#include <functional>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/thread_net.h"
#include "spdkfac/comm/threads.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/runtime/step_control.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

TEST_F(ThreadRanks, EqualOneRankOnTheJoinedBatchWhateverTheAlgorithm) {
  for (const AlgorithmInfo& info : named_algorithms()) {
    SCOPED_TRACE(info.name);
    expect_ranks_equal_one_rank({.algorithm = info.name}, 3);
  }
}

TEST_F(ThreadRanks, EqualOneRankBetweenRefreshes) {
  for (const char* algorithm : {"d-kfac", "mpd-kfac", "spd-kfac", "owner-precondition", "auto"}) {
    SCOPED_TRACE(algorithm);
    ThreadRun run{.algorithm = algorithm};
    run.kfac.factor_interval = 2;
    run.kfac.inverse_interval = 4;
    expect_ranks_equal_one_rank(run, 2);
  }
}

TEST_F(ThreadRanks, EqualOneRankWithGraftingAndGrowingIntervals) {
  for (const Graft graft : {Graft::kSgd, Graft::kAdam}) {
    for (const AlgorithmInfo& info : named_algorithms()) {
      SCOPED_TRACE(info.name + " " + graft_names()[static_cast<std::size_t>(graft)]);
      ThreadRun run{.algorithm = info.name, .steps = 25};
      run.kfac = {.damping = 0.1, .damping_mode = Damping::kRelative, .kl_clip = 0, .graft = graft};
      run.kfac.factor_interval = 2;
      run.kfac.inverse_interval = 4;
      run.kfac.interval = Refresh::kGrowing;
      expect_ranks_equal_one_rank(run, 2);
    }
  }
}

// Each rank takes every third of its own rows, so one rank on the joined batch takes others.
TEST_F(ThreadRanks, SampledFactorsAreTheSameWhateverTheAlgorithm) {
  constexpr int kWorld = 2;
  ThreadRun run;
  run.kfac.factor_rows = kThreadExamples / 3;
  const std::vector<at::Tensor> inputs = inputs_of(kWorld, run.steps);
  std::optional<at::Tensor> expected;
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (!preset(info.name).second_order()) continue;
    SCOPED_TRACE(info.name);
    run_ranks(kWorld, [&](const std::shared_ptr<Communicator>& communicator) {
      Distribution distribution;
      distribution.communicator = communicator;
      distribution.plans = PlanForCosts{thread_costs(kWorld), preset(info.name)};
      const int rank = communicator->rank();
      const at::Tensor after = trained_net(run, distribution, inputs, rank, kThreadExamples);
      if (rank != 0) return;
      if (!expected) expected = after;
      EXPECT_LT((after - *expected).abs().max().item<double>(), 1e-9);
    });
  }
}

// Adam's moments move with the inverses when the owners change.
TEST_F(ThreadRanks, GraftedStepsEqualThoseOfOneRankWhenPlansAreMadeAgain) {
  for (const char* algorithm : {"owner-reduce", "owner-precondition", "owner-blocks"}) {
    SCOPED_TRACE(algorithm);
    ThreadRun run{.algorithm = algorithm, .profile_steps = 2};
    run.kfac = {.damping = 0.1, .kl_clip = 0, .graft = Graft::kAdam};
    expect_ranks_equal_one_rank(run, 3);
  }
}

// When inverses are made, G of the first layer is zero, so that it has none until the fifth step.
TEST_F(ThreadRanks, ScaleALayerWithoutInversesAlikeWhateverTheAlgorithm) {
  for (const AlgorithmInfo& info : named_algorithms()) {
    SCOPED_TRACE(info.name);
    ThreadRun run{.algorithm = info.name};
    run.kfac.inverse_interval = 4;
    run.zero_start = true;
    expect_ranks_equal_one_rank(run, 2);
  }
}

// The times decide who owns what afterwards, so averages and inverses move.
TEST_F(ThreadRanks, EqualOneRankWhenPlansAreMadeAgain) {
  for (const char* algorithm : {"owner-reduce", "owner-precondition", "owner-blocks"}) {
    SCOPED_TRACE(algorithm);
    expect_ranks_equal_one_rank({.algorithm = algorithm, .profile_steps = 2}, 3);
  }
}

// The last layer's gradient after some steps on `rows` of these inputs; the loss is a sum over
// rows.
at::Tensor gradient_of_sums(const Distribution& distribution, const std::vector<at::Tensor>& inputs,
                            const std::vector<std::int64_t>& rows) {
  ThreadNet model;
  Preconditioner kfac(*model, {.damping = 0.1, .loss_reduction = LossReduction::kSum, .kl_clip = 0},
                      distribution);
  for (std::size_t step = 0; step < inputs.size(); ++step) {
    model->zero_grad();
    model(inputs[step].narrow(0, 0, rows[step])).square().sum().backward();
    kfac.step(kThreadRate);
  }
  EXPECT_EQ(kfac.counters().layers_without_factors, 0);
  EXPECT_EQ(kfac.counters().nonfinite_factors, 0);
  return at::cat({model->second->weight.grad().flatten(), model->second->bias.grad()});
}

// Rank 1 has no example in some steps: factors and sums of gradients are those of rank 0 alone, and
// a mean over ranks is half of the sum.
TEST_F(ThreadRanks, ABatchWithoutExamplesAddsNothing) {
  for (const bool sequences : {false, true}) {
    std::vector<at::Tensor> inputs = inputs_of(2, 3);
    if (sequences) {
      for (at::Tensor& one : inputs) one = one.view({kThreadExamples, 2, 3});
    }
    const std::vector<std::int64_t> all(3, kThreadExamples);
    const at::Tensor expected = gradient_of_sums({}, inputs, all) / 2;
    for (const AlgorithmInfo& info : named_algorithms()) {
      if (!preset(info.name).second_order()) continue;
      SCOPED_TRACE(info.name);
      run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
        Distribution distribution;
        distribution.communicator = communicator;
        distribution.plans = PlanForCosts{thread_costs(2), preset(info.name)};
        distribution.profile_steps = 0;
        const at::Tensor found =
            gradient_of_sums(distribution, inputs,
                             communicator->rank() == 0 ? all : std::vector<std::int64_t>(3, 0));
        EXPECT_LT((found - expected).abs().max().item<double>(), 1e-9);
      });
    }
  }
}

// A bias that takes no part in the loss has no gradient on any rank; on ranks it travels as zeros.
TEST_F(ThreadRanks, ABiasWithoutAGradientIsZeroOnRanks) {
  const std::vector<at::Tensor> inputs = inputs_of(2, 3);
  const auto train = [&](const Distribution& distribution, int rank, std::int64_t rows) {
    ThreadNet model;
    Preconditioner kfac(*model, {.damping = 0.1}, distribution);
    for (const at::Tensor& all : inputs) {
      model->zero_grad();
      const at::Tensor hidden =
          torch::tanh(model->first(all.narrow(0, rank * rows, rows)) * model->scale);
      at::linear(hidden, model->second->weight).square().mean().backward();
      EXPECT_FALSE(model->second->bias.grad().defined());
      kfac.step(kThreadRate);
    }
    EXPECT_EQ(kfac.counters().layers_without_factors, 0);
    const at::Tensor bias = model->second->bias.grad();
    EXPECT_TRUE(!bias.defined() || bias.isfinite().all().item<bool>());
    return at::cat({model->first->weight.grad().flatten(), model->second->weight.grad().flatten()});
  };
  const at::Tensor expected = train({}, 0, 2 * kThreadExamples);
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (!preset(info.name).second_order()) continue;
    SCOPED_TRACE(info.name);
    run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
      Distribution distribution;
      distribution.communicator = communicator;
      distribution.plans = PlanForCosts{thread_costs(2), preset(info.name)};
      distribution.profile_steps = 0;
      const at::Tensor found = train(distribution, communicator->rank(), kThreadExamples);
      EXPECT_LT((found - expected).abs().max().item<double>(), 1e-9);
    });
  }
}

// The second layer is seen in the first steps by nobody and has no gradient then; later an operator
// that hides it gives it one. On one rank and on two its gradient is scaled like the first's.
TEST_F(ThreadRanks, ScaleALayerThatIsNeverSeenAlikeWhateverTheAlgorithm) {
  const std::vector<at::Tensor> inputs = inputs_of(2, 3);
  const auto train = [&](const Distribution& distribution, int rank, std::int64_t rows) {
    ThreadNet model;
    Preconditioner kfac(*model, {.damping = 0.1}, distribution);
    for (const at::Tensor& all : inputs) {
      model->zero_grad();
      at::Tensor output =
          torch::tanh(model->first(all.narrow(0, rank * rows, rows)) * model->scale);
      if (&all != &inputs.front()) {
        output = at::linear(output, model->second->weight * 1.0, model->second->bias * 1.0);
      }
      output.square().mean().backward();
      kfac.step(kThreadRate);
    }
    EXPECT_EQ(kfac.counters().layers_without_factors, 2);
    EXPECT_EQ(kfac.counters().layers_scaled, 2);
    return at::cat({model->first->weight.grad().flatten(), model->second->weight.grad().flatten()});
  };
  const at::Tensor expected = train({}, 0, 2 * kThreadExamples);
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (!preset(info.name).second_order()) continue;
    SCOPED_TRACE(info.name);
    run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
      Distribution distribution;
      distribution.communicator = communicator;
      distribution.plans = PlanForCosts{thread_costs(2), preset(info.name)};
      distribution.profile_steps = 0;
      const at::Tensor found = train(distribution, communicator->rank(), kThreadExamples);
      EXPECT_LT((found - expected).abs().max().item<double>(), 1e-9);
    });
  }
}

// What rank 1 of two gets when it changes its gradients after they have left, in the second step.
std::string error_after(const std::string& algorithm,
                        const std::function<void(at::Tensor&)>& change) {
  const std::vector<at::Tensor> inputs = inputs_of(2, 2);
  return config_error([&] {
    run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
      Distribution distribution;
      distribution.communicator = communicator;
      distribution.plans = PlanForCosts{thread_costs(2), preset(algorithm)};
      distribution.profile_steps = 0;
      ThreadNet model;
      Preconditioner kfac(*model, {.damping = 0.1}, distribution);
      for (const at::Tensor& all : inputs) {
        model->zero_grad();
        model(all.narrow(0, communicator->rank() * kThreadExamples, kThreadExamples))
            .square()
            .mean()
            .backward();
        if (communicator->rank() == 1 && &all == &inputs.back()) {
          for (at::Tensor& parameter : model->parameters()) change(parameter.mutable_grad());
        }
        kfac.step(kThreadRate);
      }
    });
  });
}

TEST_F(ThreadRanks, AGradientThatWasChangedOrReplacedAfterItHadLeftIsAnError) {
  for (const char* algorithm : {"spd-kfac", "owner-precondition", "sgd"}) {
    SCOPED_TRACE(algorithm);
    const auto expect_refused = [&](const std::function<void(at::Tensor&)>& change) {
      EXPECT_THAT(error_after(algorithm, change), testing::HasSubstr("call synchronize() first"));
    };
    EXPECT_EQ(error_after(algorithm, [](at::Tensor&) {}), "(no error)");
    expect_refused([](at::Tensor& gradient) { gradient.mul_(0.5); });
    expect_refused([](at::Tensor& gradient) { gradient = gradient * 0.5; });
    expect_refused([](at::Tensor& gradient) { gradient = at::Tensor(); });
    expect_refused([](at::Tensor& gradient) { gradient.set_data(gradient * 0.5); });
    // The tensor may come to lie where the first one was.
    expect_refused([](at::Tensor& gradient) {
      const at::Tensor kept = gradient.detach().clone();
      gradient = at::Tensor();
      gradient = kept * 0.5;
    });
  }
}

Distribution two_ranks(const std::shared_ptr<Communicator>& communicator) {
  return on_threads(communicator, "spd-kfac");
}

// What each of two ranks gets when its Preconditioner is made; `make` may differ between them.
std::array<std::string, 2> errors_at_start(
    const std::function<void(const std::shared_ptr<Communicator>&)>& make) {
  std::array<std::string, 2> errors;
  run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    errors.at(static_cast<std::size_t>(communicator->rank())) =
        config_error([&] { make(communicator); });
  });
  return errors;
}

TEST_F(ThreadRanks, OptionsThatDifferAreNamedOnAllRanks) {
  const auto errors = errors_at_start([](const std::shared_ptr<Communicator>& communicator) {
    ThreadNet model;
    const bool odd = communicator->rank() == 1;
    Preconditioner(*model, {.damping = odd ? 0.2 : 0.1, .inverse_interval = odd ? 2 : 1},
                   two_ranks(communicator));
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(errors.at(rank), testing::HasSubstr("rank 1 of 2 differs from rank 0"));
    EXPECT_THAT(errors.at(rank), testing::HasSubstr(rank == 0 ? "damping=0.1" : "damping=0.2"));
    EXPECT_THAT(errors.at(rank), testing::HasSubstr("inverse_interval="));
    EXPECT_THAT(errors.at(rank), testing::Not(testing::HasSubstr("kl_clip")));
  }
}

// What the digest leaves out where it is as usual.
TEST_F(ThreadRanks, SolversAndSpreadRefreshesThatDifferAreNamedOnAllRanks) {
  const auto errors = errors_at_start([](const std::shared_ptr<Communicator>& communicator) {
    ThreadNet model;
    KfacOptions options;
    if (communicator->rank() == 0) options.solver = Solver::kEigen;
    if (communicator->rank() == 1) options.spread_refreshes = true;
    Preconditioner(*model, options, two_ranks(communicator));
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(errors.at(rank), testing::HasSubstr(rank == 0 ? "solver=eigen" : "solver=inverse"));
    EXPECT_THAT(errors.at(rank),
                testing::HasSubstr(rank == 0 ? "spread_refreshes=false" : "spread_refreshes=true"));
  }
}

TEST_F(ThreadRanks, PartialLayersAndExamplesThatDifferAreNamedOnAllRanks) {
  const auto errors_with = [](bool partial, bool examples) {
    return errors_at_start([=](const std::shared_ptr<Communicator>& communicator) {
      ThreadNet model;
      const bool odd = communicator->rank() == 1;
      std::vector<TrackedLayer> layers = tracked_layers(*model);
      layers.at(1).partial = partial && odd;
      KfacOptions options;
      if (examples && odd) options.examples = tokens_as_examples();
      Preconditioner(layers, model->parameters(), options, two_ranks(communicator));
    });
  };
  EXPECT_EQ(errors_with(false, false).at(0), "(no error)");
  EXPECT_THAT(errors_with(true, false).at(0), testing::HasSubstr("second [2x4] bias)"));
  EXPECT_THAT(errors_with(true, false).at(1), testing::HasSubstr("second [2x4] bias partial)"));
  EXPECT_THAT(errors_with(false, true).at(0), testing::HasSubstr("examples=of the first input)"));
  EXPECT_THAT(errors_with(false, true).at(1), testing::HasSubstr("examples=set)"));
}

TEST_F(ThreadRanks, AStateThatOneRankCannotReadIsAnErrorOnAll) {
  std::array<std::string, 2> errors;
  std::array<std::int64_t, 2> steps{};
  const std::vector<at::Tensor> inputs = inputs_of(2, 2);
  run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    const int rank = communicator->rank();
    ThreadNet model;
    Preconditioner kfac(*model, {.damping = 0.1}, two_ranks(communicator));
    KfacState first;
    for (const at::Tensor& all : inputs) {
      model->zero_grad();
      model(all.narrow(0, rank * kThreadExamples, kThreadExamples)).square().mean().backward();
      kfac.step(kThreadRate);
      if (&all == &inputs.front()) first = kfac.state().read_all();
    }
    errors.at(static_cast<std::size_t>(rank)) =
        config_error([&] { rank == 1 ? StepControl(kfac).load_failed() : kfac.load(first); });
    steps.at(static_cast<std::size_t>(rank)) = kfac.counters().steps;
  });
  EXPECT_THAT(errors[0], testing::HasSubstr("kfac state: rank 1 of 2 failed"));
  EXPECT_EQ(errors[1], "(no error)") << "its caller has one";
  EXPECT_THAT(steps, testing::ElementsAre(2, 2)) << "nothing was changed";
}

TEST_F(ThreadRanks, LayersAndPlansThatDifferAreNamedOnAllRanks) {
  const auto frozen = errors_at_start([](const std::shared_ptr<Communicator>& communicator) {
    ThreadNet model;
    if (communicator->rank() == 1) model->first->weight.set_requires_grad(false);
    Preconditioner(*model, {}, two_ranks(communicator));
  });
  const auto planned = errors_at_start([](const std::shared_ptr<Communicator>& communicator) {
    ThreadNet model;
    Distribution distribution = two_ranks(communicator);
    if (communicator->rank() == 1) {
      distribution.plans = PlanForCosts{thread_costs(2), preset("mpd-kfac")};
    }
    Preconditioner(*model, {}, distribution);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(frozen.at(rank), testing::HasSubstr("the covered layers"));
    EXPECT_THAT(planned.at(rank), testing::HasSubstr(rank == 0 ? "spd-kfac" : "mpd-kfac"));
  }
}

TEST_F(ThreadRanks, MessagesMayWaitForTheEndOfThePasses) {
  const std::vector<at::Tensor> inputs = inputs_of(2, 4);
  std::array<std::int64_t, 2> during_passes{};
  std::array<at::Tensor, 2> after;
  run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    for (const bool wait : {false, true}) {
      Distribution distribution = two_ranks(communicator);
      distribution.messages_after_passes = wait;
      ThreadNet model;
      Preconditioner kfac(*model, {.damping = 0.1}, distribution);
      std::int64_t sent = 0;
      for (const at::Tensor& all : inputs) {
        model->zero_grad();
        const std::int64_t before = communicator->traffic().operations;
        model(all.narrow(0, communicator->rank() * kThreadExamples, kThreadExamples))
            .square()
            .mean()
            .backward();
        sent += communicator->traffic().operations - before;
        kfac.step(kThreadRate);
      }
      if (communicator->rank() != 0) continue;
      during_passes.at(wait ? 1 : 0) = sent;
      after.at(wait ? 1 : 0) = model->second->weight.grad().clone();
    }
  });
  EXPECT_GT(during_passes[0], 0);
  EXPECT_EQ(during_passes[1], 0);
  EXPECT_TRUE(torch::equal(after[0], after[1]));
}

// Its scale belongs to no layer then, and comes before the first one that is trained.
TEST_F(ThreadRanks, AFrozenFirstLayerIsLeftOut) {
  const std::vector<at::Tensor> inputs = inputs_of(2, 3);
  const auto train = [&](const Distribution& distribution, int rank, std::int64_t rows) {
    ThreadNet model;
    model->first->weight.set_requires_grad(false);
    Preconditioner kfac(*model, {.damping = 0.1}, distribution);
    EXPECT_EQ(kfac.layers().size(), 1U);
    for (const at::Tensor& all : inputs) {
      model->zero_grad();
      model(all.narrow(0, rank * rows, rows)).square().mean().backward();
      kfac.step(kThreadRate);
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : model->parameters()) {
        if (parameter.requires_grad()) parameter.sub_(parameter.grad(), kThreadRate);
      }
    }
    return at::cat({model->scale.detach(), model->second->weight.detach().flatten()});
  };
  std::array<at::Tensor, 2> after;
  run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    const int rank = communicator->rank();
    after.at(static_cast<std::size_t>(rank)) =
        train(two_ranks(communicator), rank, kThreadExamples);
  });
  const at::Tensor expected = train({}, 0, 2 * kThreadExamples);
  for (const at::Tensor& of_rank : after) {
    EXPECT_LT((of_rank - expected).abs().max().item<double>(), 1e-9);
  }
}

// The tables that plans were made for, on rank 0 of two.
std::vector<ModelSpec> tables_of_plans(const KfacOptions& options, std::int64_t profile_steps,
                                       std::int64_t steps) {
  const std::vector<at::Tensor> inputs = inputs_of(2, steps);
  std::vector<ModelSpec> tables;
  run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    Distribution distribution = two_ranks(communicator);
    distribution.profile_steps = profile_steps;
    const auto planner = [&](const ModelSpec& model, const RefreshIntervals& intervals,
                             StepKind step) {
      if (communicator->rank() == 0 && step == StepKind::kFull) tables.push_back(model);
      return make_plan(model, thread_costs(2), 2, preset("spd-kfac"), intervals, step);
    };
    distribution.plans = CustomPlanner{planner};
    trained_net({.kfac = options}, distribution, inputs, communicator->rank(), kThreadExamples);
  });
  return tables;
}

TEST_F(ThreadRanks, PlansAreMadeAgainWhenAStepWithFactorsWasTimed) {
  // Steps 1 and 2 are timed, and step 5, the next with factors.
  const KfacOptions rare{.damping = 0.1, .factor_interval = 5, .inverse_interval = 10};
  EXPECT_EQ(tables_of_plans(rare, 2, 5).size(), 1U);
  const std::vector<ModelSpec> tables = tables_of_plans(rare, 2, 7);
  ASSERT_EQ(tables.size(), 2U);
  for (const LayerSpec& layer : tables.back().layers) {
    ASSERT_TRUE(layer.times.has_value());
    EXPECT_GT(layer.times->factor_a, Seconds(0)) << layer.name;
    EXPECT_GT(layer.times->factor_g, Seconds(0)) << layer.name;
    EXPECT_FALSE(layer.times->inverse_a.has_value()) << "none was timed: that of the cost model";
  }
  EXPECT_EQ(tables_of_plans({.damping = 0.1}, 2, 3).size(), 2U) << "factors in every step";
}

TEST_F(ThreadRanks, LayersAreNotTimedForAGivenPlan) {
  const std::vector<at::Tensor> inputs = inputs_of(2, 3);
  run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    // The plan that three steps followed, and whether the layers have times after them.
    const auto train = [&](const PlanSource& plans) {
      Distribution distribution = two_ranks(communicator);
      distribution.plans = plans;
      distribution.profile_steps = 1;
      ThreadNet model;
      Preconditioner kfac(*model, {.damping = 0.1}, distribution);
      for (const at::Tensor& all : inputs) {
        model->zero_grad();
        model(all.narrow(0, communicator->rank() * kThreadExamples, kThreadExamples))
            .square()
            .mean()
            .backward();
        kfac.step(kThreadRate);
      }
      return std::pair(kfac.plan().value(), kfac.model().layers.front().times.has_value());
    };
    const auto [plan, timed] = train(PlanForCosts{thread_costs(2), preset("spd-kfac")});
    EXPECT_TRUE(timed);
    const auto [followed, timed_again] = train(FollowPlan{plan});
    EXPECT_FALSE(timed_again);
    EXPECT_EQ(followed.digest(), plan.digest());
  });
}

}  // namespace
}  // namespace spdkfac
