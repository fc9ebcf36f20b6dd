// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/thread_ranks.h"
#include "spdkfac/comm/threads.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/runtime/step_control.h"

namespace spdkfac::support {

inline constexpr double kThreadRate = 0.05;
inline constexpr std::int64_t kThreadExamples = 6;  // of a rank in a step

// Two Linear layers, one with a bias, and a parameter outside them.
struct ThreadNetImpl : torch::nn::Module {
  ThreadNetImpl() {
    first = register_module("first", torch::nn::Linear(torch::nn::LinearOptions(3, 4).bias(false)));
    scale = register_parameter("scale", torch::ones({4}));
    second = register_module("second", torch::nn::Linear(4, 2));
    set_parameters(*this);
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
  bool zero_start = false;  // the last layer begins with zeros, so no gradient reaches the first
  // Called before each step.
  std::function<void(Preconditioner& kfac, std::size_t step)> before_step = nullptr;
};

// Inputs of all ranks in each step.
inline std::vector<at::Tensor> inputs_of(int world, std::int64_t steps) {
  torch::manual_seed(21);
  std::vector<at::Tensor> inputs;
  for (std::int64_t step = 0; step < steps; ++step) {
    inputs.push_back(torch::randn({world * kThreadExamples, 3}, at::kDouble));
  }
  return inputs;
}

inline at::Tensor flat_parameters(const ThreadNet& model) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : model->parameters()) {
    parts.push_back(parameter.detach().reshape({-1}));
  }
  return at::cat(parts);
}

// A step of plain gradient descent on this input, judged where damping follows the loss.
inline void thread_step(ThreadNet& model, Preconditioner& kfac, const at::Tensor& input) {
  model->zero_grad();
  const at::Tensor loss = model(input).square().mean();
  loss.backward();
  kfac.step(kThreadRate);
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), kThreadRate);
  if (!StepControl(kfac).judges_damping()) return;
  StepControl(kfac).judge_damping(loss.item<double>(), model(input).square().mean().item<double>());
}

// Parameters after training on rows [rank·rows, (rank+1)·rows) of each input.
inline at::Tensor trained_net(const ThreadRun& run, const Distribution& distribution,
                              const std::vector<at::Tensor>& inputs, int rank, std::int64_t rows) {
  ThreadNet model;
  if (run.zero_start) {
    const torch::NoGradGuard no_grad;
    model->second->weight.zero_();
  }
  Preconditioner kfac(*model, run.kfac, distribution);
  for (std::size_t step = 0; step < inputs.size(); ++step) {
    if (run.before_step) run.before_step(kfac, step);
    thread_step(model, kfac, inputs[step].narrow(0, rank * rows, rows));
  }
  return flat_parameters(model);
}

inline void expect_ranks_equal_one_rank(const ThreadRun& run, int world) {
  const std::vector<at::Tensor> inputs = inputs_of(world, run.steps);
  const PlanOptions options = preset(run.algorithm);
  std::vector<at::Tensor> after(static_cast<std::size_t>(world));
  run_ranks(world, [&](const std::shared_ptr<Communicator>& communicator) {
    Distribution distribution;
    distribution.communicator = communicator;
    distribution.plans = PlanForCosts{thread_costs(world), options};
    distribution.profile_steps = run.profile_steps;
    const int rank = communicator->rank();
    after[static_cast<std::size_t>(rank)] =
        trained_net(run, distribution, inputs, rank, kThreadExamples);
  });
  Distribution alone;
  alone.plans = MeasureHere{.options = options};
  const at::Tensor expected = trained_net(run, alone, inputs, 0, world * kThreadExamples);
  for (const at::Tensor& of_rank : after) {
    EXPECT_TRUE(torch::equal(of_rank, after.front()));
    EXPECT_LT((of_rank - expected).abs().max().item<double>(), 1e-9);
  }
}

using ThreadRanks = ThreadRanksTest;

}  // namespace spdkfac::support
