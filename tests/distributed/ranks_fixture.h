// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "spdkfac/plan/plan_options.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/sim/auto_planner.h"
#include "support/device.h"
#include "support/models.h"
#include "support/world.h"

// Small networks trained on all ranks, with data of each rank's own.
namespace spdkfac::support {

// Convolutions with and without bias, Linear layers, no batch statistics.
struct RankNetImpl : torch::nn::Module {
  explicit RankNetImpl(at::ScalarType type = at::kFloat, std::int64_t hidden = 12) {
    using torch::nn::Conv2dOptions;
    first = register_module("first", torch::nn::Conv2d(Conv2dOptions(2, 6, 3).padding(1)));
    second = register_module(
        "second", torch::nn::Conv2d(Conv2dOptions(6, 8, 3).stride(2).padding(1).bias(false)));
    scale = register_parameter("scale", torch::ones({8, 1, 1}));
    third = register_module("third", torch::nn::Linear(8 * 3 * 3, hidden));
    out = register_module("out", torch::nn::Linear(hidden, 4));
    to(test_device(), type);
  }
  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor features = torch::tanh(second(torch::tanh(first(images))) * scale);
    return out(torch::tanh(third(features.flatten(1))));
  }
  torch::nn::Conv2d first = nullptr;
  torch::nn::Conv2d second = nullptr;
  at::Tensor scale;
  torch::nn::Linear third = nullptr;
  torch::nn::Linear out = nullptr;
};
TORCH_MODULE(RankNet);

struct RankBatch {
  at::Tensor images;
  at::Tensor labels;
};

// The examples of a rank in a step: the same numbers in every run.
inline RankBatch rank_batch(int rank, std::int64_t step, at::ScalarType type = at::kFloat,
                            std::int64_t examples = 5) {
  auto generator =
      at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 + 100 * step + rank));
  const at::Tensor images = at::randn({examples, 2, 6, 6}, generator, at::kDouble);
  const at::Tensor labels = at::randint(4, {examples}, generator, at::kLong);
  return {images.to(test_device(), type), labels.to(test_device())};
}

inline at::Tensor rank_loss(RankNet& model, const RankBatch& batch) {
  return torch::nn::functional::cross_entropy(model(batch.images), batch.labels);
}

inline RankNet seeded_net(at::ScalarType type = at::kFloat) {
  torch::manual_seed(7);
  return RankNet(type);
}

// Costs under which fusion, placement and the choice of what to exchange all have something to
// decide for RankNet: messages cost little, inversions much.
inline CostModel rank_costs(int world) {
  CostModel costs = affine_costs(std::max(world, 2), 2e-6, 1e-8, CubicInverse{1e-5, 0, 0, 1e-7});
  costs.compute = ComputeRates{FlopsPerSecond(1e9), FlopsPerSecond(1e9), FlopsPerSecond(1e9)};
  return costs;
}

struct RankRun {
  std::string algorithm = "d-kfac";
  std::int64_t steps = 10;
  KfacOptions kfac = {};
  std::int64_t profile_steps = 0;
  at::ScalarType type = at::kFloat;
  int backward_passes = 1;     // of each step
  bool random_delays = false;  // each rank waits now and then
};

// Follows the algorithm of `run`; `seen`, if given, receives the model of the last plan.
inline Distribution distribution_of(const RankRun& run, std::shared_ptr<Communicator> communicator,
                                    ModelSpec* seen = nullptr) {
  const int world = communicator->size();
  Distribution distribution;
  distribution.communicator = std::move(communicator);
  distribution.profile_steps = run.profile_steps;
  const PlanOptions options = preset(run.algorithm);
  const auto planner = [options, world, seen](const ModelSpec& model,
                                              const RefreshIntervals& intervals, StepKind step) {
    if (seen) *seen = model;
    return make_best_plan(model, rank_costs(world), world, options, intervals, step);
  };
  distribution.plans = CustomPlanner{planner, options.second_order()};
  return distribution;
}

inline void wait_at_random(std::mt19937& random) {
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
}

constexpr double kRankRate = 0.05;

// One step of plain SGD on preconditioned gradients.
inline void train_step(RankNet& model, Preconditioner& kfac, const RankRun& run, int rank,
                       std::int64_t step, std::mt19937& random) {
  model->zero_grad();
  for (int pass = 0; pass < run.backward_passes; ++pass) {
    if (run.random_delays) wait_at_random(random);
    const at::Tensor loss =
        rank_loss(model, rank_batch(rank, step * run.backward_passes + pass, run.type));
    if (run.random_delays) wait_at_random(random);
    (loss / run.backward_passes).backward();
  }
  if (run.random_delays) wait_at_random(random);
  kfac.step(kRankRate);
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), kRankRate);
}

inline at::Tensor flat_parameters(const RankNet& model) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : model->parameters()) {
    parts.push_back(parameter.detach().reshape({-1}).cpu());
  }
  return at::cat(parts);
}

// Parameters after each step.
inline std::vector<at::Tensor> trained(const RankRun& run) {
  // On a GPU some of torch's kernels sum in an order that differs from run to run.
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  RankNet model = seeded_net(run.type);
  Preconditioner kfac(*model, run.kfac, distribution_of(run, world()));
  std::mt19937 random(static_cast<unsigned>(world()->rank()));
  std::vector<at::Tensor> after;
  for (std::int64_t step = 0; step < run.steps; ++step) {
    train_step(model, kfac, run, world()->rank(), step, random);
    after.push_back(flat_parameters(model));
  }
  return after;
}

inline double relative_difference(const at::Tensor& value, const at::Tensor& reference) {
  return ((value - reference).abs().max() / reference.abs().max()).item<double>();
}

// Whether all ranks hold the same bits.
inline bool same_on_all_ranks(const at::Tensor& value) {
  const at::Tensor mine = value.contiguous();
  const at::Tensor all = at::empty({world()->size(), mine.numel()}, mine.options());
  world()->all_gather_async(mine, all, "comparison").wait();
  for (int rank = 0; rank < world()->size(); ++rank) {
    if (!torch::equal(all[rank], all[0])) return false;
  }
  return true;
}

// Every algorithm that a run can follow.
inline std::vector<std::string> all_algorithms(bool first_order = false) {
  std::vector<std::string> names;
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (info.options.second_order() || first_order) names.push_back(info.name);
  }
  names.push_back(kAutoAlgorithm);
  return names;
}

}  // namespace spdkfac::support
