// SPDX-License-Identifier: Apache-2.0
// The whole step on several ranks that are threads of this process.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "spdkfac/comm/threads.h"
#include "spdkfac/runtime/preconditioner.h"
#include "support/device.h"
#include "support/models.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

constexpr double kRate = 0.05;
constexpr std::int64_t kExamples = 6;  // of a rank in a step

// Two Linear layers, one with a bias, and a parameter outside them.
struct ThreadNetImpl : torch::nn::Module {
  ThreadNetImpl() {
    first = register_module("first", torch::nn::Linear(torch::nn::LinearOptions(3, 4).bias(false)));
    scale = register_parameter("scale", torch::ones({4}));
    second = register_module("second", torch::nn::Linear(4, 2));
    to(at::kDouble);
    // Not at random: the generator is shared by all threads.
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(torch::arange(1, parameter.numel() + 1, at::kDouble)
                          .mul(0.7)
                          .sin()
                          .view(parameter.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& input) { return second(torch::tanh(first(input) * scale)); }
  torch::nn::Linear first = nullptr;
  at::Tensor scale;
  torch::nn::Linear second = nullptr;
};
TORCH_MODULE(ThreadNet);

struct ThreadRun {
  std::string algorithm = "spd-kfac";
  KfacOptions kfac = {.damping = 0.1};
  std::int64_t profile_steps = 0;
  std::int64_t steps = 6;
};

CostModel thread_costs(int world) {
  CostModel costs = affine_costs(world, 2e-6, 1e-8, CubicInverse{1e-5, 0, 0, 1e-7});
  costs.compute = ComputeRates{FlopsPerSecond(1e9), FlopsPerSecond(1e9), FlopsPerSecond(1e9)};
  return costs;
}

// Inputs of all ranks in each step.
std::vector<at::Tensor> inputs_of(int world, std::int64_t steps) {
  torch::manual_seed(21);
  std::vector<at::Tensor> inputs;
  for (std::int64_t step = 0; step < steps; ++step) {
    inputs.push_back(torch::randn({world * kExamples, 3}, at::kDouble));
  }
  return inputs;
}

// Parameters after training on rows [rank·rows, (rank+1)·rows) of each input.
at::Tensor trained_net(const ThreadRun& run, const Distribution& distribution,
                       const std::vector<at::Tensor>& inputs, int rank, std::int64_t rows) {
  ThreadNet model;
  Preconditioner kfac(*model, run.kfac, distribution);
  for (const at::Tensor& all : inputs) {
    model->zero_grad();
    model(all.narrow(0, rank * rows, rows)).square().mean().backward();
    kfac.step(kRate);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), kRate);
  }
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : model->parameters()) {
    parts.push_back(parameter.detach().reshape({-1}));
  }
  return at::cat(parts);
}

void expect_ranks_equal_one_rank(const ThreadRun& run, int world) {
  const std::vector<at::Tensor> inputs = inputs_of(world, run.steps);
  const PlanOptions options = preset(run.algorithm);
  std::vector<at::Tensor> after(static_cast<std::size_t>(world));
  run_ranks(world, [&](const std::shared_ptr<Communicator>& communicator) {
    Distribution distribution;
    distribution.communicator = communicator;
    distribution.plans = PlanForCosts{thread_costs(world), options};
    distribution.profile_steps = run.profile_steps;
    const int rank = communicator->rank();
    after[static_cast<std::size_t>(rank)] = trained_net(run, distribution, inputs, rank, kExamples);
  });
  Distribution alone;
  alone.plans = MeasureHere{.options = options};
  const at::Tensor expected = trained_net(run, alone, inputs, 0, world * kExamples);
  for (const at::Tensor& of_rank : after) {
    EXPECT_TRUE(torch::equal(of_rank, after.front()));
    EXPECT_LT((of_rank - expected).abs().max().item<double>(), 1e-9);
  }
}

class ThreadRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "ranks that are threads take tensors of the CPU";
    at::set_num_threads(1);
  }
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

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

// The times decide who owns what afterwards, so averages and inverses move.
TEST_F(ThreadRanks, EqualOneRankWhenPlansAreMadeAgain) {
  for (const char* algorithm : {"owner-reduce", "owner-precondition", "owner-blocks"}) {
    SCOPED_TRACE(algorithm);
    expect_ranks_equal_one_rank({.algorithm = algorithm, .profile_steps = 2}, 3);
  }
}

}  // namespace
}  // namespace spdkfac
