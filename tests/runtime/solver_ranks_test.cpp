// SPDX-License-Identifier: Apache-2.0
// Solvers that keep eigenvectors, on ranks that are threads, and on one rank over a whole run.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/thread_net.h"
#include "runtime/thread_ranks.h"
#include "spdkfac/comm/threads.h"
#include "spdkfac/runtime/presets.h"
#include "spdkfac/runtime/update.h"
#include "support/config_error.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

constexpr Solver kOfEigenvectors[] = {Solver::kEigen, Solver::kEkfac, Solver::kAdam};

std::string name(Solver solver) { return solver_names()[static_cast<std::size_t>(solver)]; }

ThreadRun run_with(Solver solver, const std::string& algorithm) {
  ThreadRun run{.algorithm = algorithm};
  run.kfac = {.damping = 0.1, .damping_mode = Damping::kRelative};
  set_solver(run.kfac, solver);
  return run;
}

TEST_F(ThreadRanks, EqualOneRankWithEigenvectorsWhateverTheAlgorithm) {
  for (const Solver solver : kOfEigenvectors) {
    for (const AlgorithmInfo& info : named_algorithms()) {
      SCOPED_TRACE(name(solver) + " " + info.name);
      expect_ranks_equal_one_rank(run_with(solver, info.name), 3);
    }
  }
}

TEST_F(ThreadRanks, EqualOneRankWithEigenvectorsBetweenRefreshes) {
  for (const Solver solver : kOfEigenvectors) {
    for (const Refresh refresh : {Refresh::kFixed, Refresh::kGrowing, Refresh::kAdaptive}) {
      for (const char* algorithm : {"d-kfac", "mpd-kfac", "owner-precondition", "auto"}) {
        SCOPED_TRACE(name(solver) + " " + algorithm + " " +
                     refresh_names()[static_cast<std::size_t>(refresh)]);
        ThreadRun run = run_with(solver, algorithm);
        run.steps = 12;
        run.kfac.interval = refresh;
        run.kfac.factor_interval = 2;
        run.kfac.inverse_interval = 4;
        expect_ranks_equal_one_rank(run, 2);
        if (refresh != Refresh::kFixed) continue;
        run.kfac.spread_refreshes = true;
        expect_ranks_equal_one_rank(run, 2);
      }
    }
  }
}

// Eigenvectors and their moments move when the owners change.
TEST_F(ThreadRanks, EqualOneRankWithEigenvectorsWhenPlansAreMadeAgain) {
  for (const Solver solver : kOfEigenvectors) {
    for (const char* algorithm : {"owner-reduce", "owner-precondition", "owner-blocks"}) {
      SCOPED_TRACE(name(solver) + " " + algorithm);
      ThreadRun run = run_with(solver, algorithm);
      run.profile_steps = 2;
      expect_ranks_equal_one_rank(run, 3);
    }
  }
}

// Without grafting, and with it: the first moment of Adam is what ekfac preconditions then.
TEST_F(ThreadRanks, EqualOneRankWithEigenvectorsAndGrafting) {
  for (const Solver solver : {Solver::kEigen, Solver::kEkfac}) {
    for (const Graft graft : {Graft::kSgd, Graft::kAdam}) {
      SCOPED_TRACE(name(solver) + " " + graft_names()[static_cast<std::size_t>(graft)]);
      ThreadRun run = run_with(solver, "spd-kfac");
      set_graft(run.kfac, graft);
      expect_ranks_equal_one_rank(run, 2);
    }
  }
}

// G of the first layer is zero when eigenvectors are first made. The last layer's weight has rank
// one at first, which leaves G a null space in which Adam would divide rounding by rounding: ε is
// far above that.
TEST_F(ThreadRanks, ALayerWithoutGAtFirstTakesStepsOfAdam) {
  for (const AlgorithmInfo& info : named_algorithms()) {
    SCOPED_TRACE(info.name);
    ThreadRun run = run_with(Solver::kAdam, info.name);
    run.zero_start = true;
    run.kfac.inverse_interval = 4;
    run.kfac.graft_adam.epsilon = 1e-2;
    expect_ranks_equal_one_rank(run, 2);
  }
}

TEST(SolverOptions, AdamSetsTheLengthItself) {
  KfacOptions options = kfac_preset("mlp");
  ASSERT_EQ(options.graft, Graft::kAdam);
  set_solver(options, Solver::kAdam);
  EXPECT_NO_THROW(validate(options));
  EXPECT_TRUE(options.sets_length());
  options.graft = Graft::kSgd;
  expect_config_error([&] { validate(options); }, "kfac: graft=sgd; pass none: solver=adam sets");
  options.graft = Graft::kNone;
  options.kl_clip = 0.1;
  expect_config_error([&] { validate(options); }, "kfac: kl_clip=0.1; pass 0: solver=adam sets");
}

// With unit vectors for eigenvectors, as of diagonal factors, the solver is AdamW of torch.
TEST(SolverOptions, AdamOverDiagonalFactorsIsTorchsAdamW) {
  const auto options = torch::optim::AdamWOptions(0.05).weight_decay(0.1).betas({0.8, 0.9});
  ThreadNet with;
  ThreadNet without;
  torch::optim::AdamW one(with->parameters(), options);
  torch::optim::AdamW other(without->parameters(), options);
  KfacOptions kfac_options = kfac_preset("mlp", one);
  set_solver(kfac_options, Solver::kAdam);
  kfac_options.max_dimension = 1;
  Preconditioner kfac(*with, kfac_options);
  for (const at::Tensor& input : inputs_of(1, 8)) {
    one.zero_grad();
    with(input).square().mean().backward();
    kfac.step(0.05);
    update_parameters(one, kfac);
    other.zero_grad();
    without(input).square().mean().backward();
    other.step();
    EXPECT_TRUE(near_within(flat_parameters(with), flat_parameters(without), 1e-10));
  }
}

}  // namespace
}  // namespace spdkfac
