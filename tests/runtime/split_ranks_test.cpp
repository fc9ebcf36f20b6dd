// SPDX-License-Identifier: Apache-2.0
// Grouped convolutions, and factors in blocks and diagonals, on ranks that are threads.
#include <algorithm>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/thread_ranks.h"
#include "spdkfac/comm/threads.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/runtime/presets.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)
using SplitRanks = ThreadRanksTest;
namespace nn = torch::nn;

constexpr std::int64_t kImages = 4;  // of a rank in a step
constexpr double kSplitRate = 0.05;

// A depthwise convolution, one of two groups, and a Linear layer.
struct GroupedNetImpl : nn::Module {
  GroupedNetImpl() {
    depthwise =
        register_module("depthwise", nn::Conv2d(nn::Conv2dOptions(4, 8, 3).padding(1).groups(4)));
    grouped = register_module(
        "grouped", nn::Conv2d(nn::Conv2dOptions(8, 6, 3).stride(2).groups(2).bias(false)));
    out = register_module("out", nn::Linear(6 * 2 * 2, 5));
    set_parameters(*this, 0.5);
  }
  at::Tensor forward(const at::Tensor& images) {
    return out(torch::tanh(grouped(torch::tanh(depthwise(images)))).flatten(1));
  }
  nn::Conv2d depthwise = nullptr;
  nn::Conv2d grouped = nullptr;
  nn::Linear out = nullptr;
};
TORCH_MODULE(GroupedNet);

std::vector<at::Tensor> images_of(int world, std::int64_t steps) {
  torch::manual_seed(22);
  std::vector<at::Tensor> images;
  for (std::int64_t step = 0; step < steps; ++step) {
    images.push_back(torch::randn({world * kImages, 4, 5, 5}, at::kDouble));
  }
  return images;
}

// Parameters after training on images [rank·count, (rank+1)·count) of each step.
at::Tensor trained_grouped_net(const KfacOptions& options, const Distribution& distribution,
                               const std::vector<at::Tensor>& images, int rank,
                               std::int64_t count) {
  GroupedNet model;
  Preconditioner kfac(*model, options, distribution);
  for (const at::Tensor& all : images) {
    model->zero_grad();
    model(all.narrow(0, rank * count, count)).square().sum(1).mean().backward();
    kfac.step(kSplitRate);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), kSplitRate);
  }
  EXPECT_EQ(kfac.counters().layers_without_factors, 0);
  EXPECT_EQ(kfac.counters().layers_scaled, 0);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : model->parameters()) {
    parts.push_back(parameter.detach().reshape({-1}));
  }
  return at::cat(parts);
}

void expect_split_ranks_equal_one(const KfacOptions& options, const std::string& algorithm,
                                  int world, std::int64_t profile_steps = 0) {
  const std::vector<at::Tensor> images = images_of(world, 4);
  std::vector<at::Tensor> after(static_cast<std::size_t>(world));
  run_ranks(world, [&](const std::shared_ptr<Communicator>& communicator) {
    Distribution distribution = on_threads(communicator, algorithm);
    distribution.profile_steps = profile_steps;
    const int rank = communicator->rank();
    after[static_cast<std::size_t>(rank)] =
        trained_grouped_net(options, distribution, images, rank, kImages);
  });
  const at::Tensor expected =
      trained_grouped_net(options, {}, images, 0, static_cast<std::int64_t>(world) * kImages);
  for (const at::Tensor& of_rank : after) {
    EXPECT_TRUE(torch::equal(of_rank, after.front()));
    EXPECT_LT((of_rank - expected).abs().max().item<double>(), 1e-9);
  }
}

std::vector<std::string> second_order_algorithms() {
  std::vector<std::string> names;
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (preset(info.name).second_order()) names.push_back(info.name);
  }
  names.emplace_back(kAutoAlgorithm);
  return names;
}

TEST_F(SplitRanks, GroupedConvolutionsEqualOneRankWhateverTheAlgorithm) {
  for (const std::string& algorithm : second_order_algorithms()) {
    SCOPED_TRACE(algorithm);
    expect_split_ranks_equal_one({.damping = 0.1}, algorithm, 3);
  }
}

TEST_F(SplitRanks, EveryDampingOfGroupsEqualsOneRank) {
  for (const Damping mode : {Damping::kPlain, Damping::kRelative}) {
    for (const char* algorithm : {"spd-kfac", "owner-reduce", "owner-blocks"}) {
      SCOPED_TRACE(algorithm);
      expect_split_ranks_equal_one({.damping = 0.1, .damping_mode = mode}, algorithm, 2);
    }
  }
}

// A of 10, 36 and 25 rows and G of the Linear layer, of 5, are above 4; the other G are not.
TEST_F(SplitRanks, SplitFactorsEqualOneRankWhateverTheAlgorithm) {
  for (const LargeFactors large : {LargeFactors::kDiagonal, LargeFactors::kBlocks}) {
    for (const std::string& algorithm : second_order_algorithms()) {
      SCOPED_TRACE(algorithm + " " + large_factors_names()[static_cast<std::size_t>(large)]);
      KfacOptions options{.damping = 0.1};
      options.max_dimension = 4;
      options.large_factors = large;
      expect_split_ranks_equal_one(options, algorithm, 2);
    }
  }
}

// The times decide who owns what afterwards, so averages and inverses move.
TEST_F(SplitRanks, EqualOneRankBetweenRefreshesAndWhenPlansAreMadeAgain) {
  for (const char* algorithm : {"spd-kfac", "owner-reduce", "owner-precondition"}) {
    SCOPED_TRACE(algorithm);
    KfacOptions options{.damping = 0.1};
    options.max_dimension = 12;
    expect_split_ranks_equal_one(options, algorithm, 3, /*profile_steps=*/2);
    options.kl_clip = 0;
    options.graft = Graft::kAdam;
    options.factor_interval = 2;
    options.inverse_interval = 2;
    expect_split_ranks_equal_one(options, algorithm, 2);
  }
}

// Eigenvectors of groups, blocks and diagonals, and moments in them. The last weight has a low rank
// at first, and so has its G: ε keeps Adam from dividing rounding by rounding.
TEST_F(SplitRanks, EqualOneRankWithEigenvectors) {
  for (const Solver solver : {Solver::kEigen, Solver::kEkfac, Solver::kAdam}) {
    for (const LargeFactors large : {LargeFactors::kDiagonal, LargeFactors::kBlocks}) {
      for (const char* algorithm : {"mpd-kfac", "owner-precondition"}) {
        SCOPED_TRACE(solver_names()[static_cast<std::size_t>(solver)] + " " +
                     large_factors_names()[static_cast<std::size_t>(large)] + " " + algorithm);
        KfacOptions options{.damping = 0.1};
        set_solver(options, solver);
        options.graft_adam.epsilon = 1e-2;
        options.max_dimension = 12;
        options.large_factors = large;
        expect_split_ranks_equal_one(options, algorithm, 2);
      }
    }
  }
}

TEST_F(SplitRanks, PlansSayBlocksAndSendNoMoreThanThat) {
  const std::vector<at::Tensor> images = images_of(2, 1);
  run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    GroupedNet model;
    KfacOptions options{.damping = 0.1};
    options.max_dimension = 20;
    Preconditioner kfac(*model, options, on_threads(communicator, "d-kfac"));
    model(images[0].narrow(0, 0, kImages)).square().sum(1).mean().backward();
    kfac.step(kSplitRate);
    const Plan plan = kfac.plan().value();
    const auto factor = [&](int layer, FactorSide side) {
      const auto found = std::find_if(
          plan.placements.begin(), plan.placements.end(),
          [&](const FactorPlacement& one) { return one.layer == layer && one.side == side; });
      return std::pair(found->dim, found->blocks);
    };
    // A of the depthwise one has 9 + 1 rows in each of 4 groups, G 2; of the second one A has 36
    // rows in 2 groups, more than 20 and so diagonal, G 3; of the Linear one A has 25 rows.
    EXPECT_EQ(factor(0, FactorSide::kA), std::pair(std::int64_t{10}, std::int64_t{4}));
    EXPECT_EQ(factor(0, FactorSide::kG), std::pair(std::int64_t{2}, std::int64_t{4}));
    EXPECT_EQ(factor(1, FactorSide::kA), std::pair(std::int64_t{1}, std::int64_t{72}));
    EXPECT_EQ(factor(1, FactorSide::kG), std::pair(std::int64_t{3}, std::int64_t{2}));
    EXPECT_EQ(factor(2, FactorSide::kA), std::pair(std::int64_t{1}, std::int64_t{25}));
    EXPECT_EQ(factor(2, FactorSide::kG), std::pair(std::int64_t{5}, std::int64_t{1}));
    std::int64_t factors = 0;
    std::int64_t all = 0;
    for (const FactorPlacement& one : plan.placements) factors += one.packed();
    for (const Message& message : plan.messages) all += message.elements;
    EXPECT_EQ(factors, 4 * 55 + 4 * 3 + 72 + 2 * 6 + 25 + 15);
    EXPECT_EQ(all, factors + kfac.model().parameters);
  });
}

}  // namespace
}  // namespace spdkfac
