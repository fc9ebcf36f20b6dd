// SPDX-License-Identifier: Apache-2.0
// Ranks whose batches differ in size, and of which some do not call a layer: factors are those of
// all examples together, by their definition.
#include <array>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/thread_ranks.h"
#include "spdkfac/comm/threads.h"
#include "spdkfac/runtime/preconditioner.h"
#include "support/models.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)
using UnevenRanks = ThreadRanksTest;

constexpr int kUnevenRanks = 2;
constexpr double kUnevenDamping = 0.1;
constexpr double kUnevenDecay = 0.5;
constexpr std::array<std::int64_t, kUnevenRanks> kUnevenRows = {6, 2};  // examples of each rank
constexpr std::array<const char*, 3> kUnevenLayers = {"first", "expert", "last"};

// The expert sees the first rows of the batch; without any it is not called, or called with none.
struct ExpertNetImpl : torch::nn::Module {
  ExpertNetImpl() {
    first = register_module("first", torch::nn::Linear(torch::nn::LinearOptions(3, 4).bias(false)));
    expert = register_module("expert", torch::nn::Linear(4, 4));
    last = register_module("last", torch::nn::Linear(4, 2));
    set_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& input, std::int64_t rows) {
    at::Tensor hidden = torch::tanh(first(input));
    if (rows > 0 || call_with_none) {
      const at::Tensor seen = torch::tanh(expert(hidden.narrow(0, 0, rows)));
      hidden = torch::cat({seen, hidden.narrow(0, rows, hidden.size(0) - rows)});
    }
    return last(hidden);
  }
  bool call_with_none = false;
  torch::nn::Linear first = nullptr;
  torch::nn::Linear expert = nullptr;
  torch::nn::Linear last = nullptr;
};
TORCH_MODULE(ExpertNet);

// The rows of the expert on each rank, step by step.
using ExpertRows = std::vector<std::array<std::int64_t, kUnevenRanks>>;

at::Tensor uneven_input(std::size_t step, int rank) {
  const std::int64_t rows = kUnevenRows[static_cast<std::size_t>(rank)];
  return torch::arange(1, rows * 3 + 1, at::kDouble)
      .mul(0.9 + 0.2 * static_cast<double>(step) + 0.3 * rank)
      .cos()
      .view({rows, 3});
}

at::Tensor uneven_loss(const at::Tensor& output) { return output.square().sum(1).mean(); }

// Sums over ranks for one layer and one step.
struct LayerSums {
  at::Tensor a, g, gradient;
  double examples = 0;

  void add(const at::Tensor& input, const at::Tensor& output_gradient, bool bias,
           std::int64_t examples_of_rank) {
    at::Tensor rows = input.detach();
    if (bias) rows = torch::cat({rows, torch::ones({rows.size(0), 1}, at::kDouble)}, 1);
    // Of one example's loss: the mean has 1/examples of it.
    const at::Tensor each = output_gradient * examples_of_rank;
    const auto add_to = [](at::Tensor& sum, const at::Tensor& one) {
      sum = sum.defined() ? sum + one : one;
    };
    add_to(a, rows.t().mm(rows));
    add_to(g, each.t().mm(each));
    add_to(gradient, output_gradient.t().mm(rows) / kUnevenRanks);  // the mean of the ranks
    examples += static_cast<double>(rows.size(0));
  }
};

// The sums of all layers in a step, computed on plain tensors.
std::array<LayerSums, 3> sums_of_step(std::size_t step, const ExpertRows& rows) {
  ExpertNet net;
  std::array<LayerSums, 3> sums;
  for (int rank = 0; rank < kUnevenRanks; ++rank) {
    const std::int64_t seen = rows[step][static_cast<std::size_t>(rank)];
    const std::int64_t all = kUnevenRows[static_cast<std::size_t>(rank)];
    const at::Tensor input = uneven_input(step, rank);
    const at::Tensor y1 = torch::mm(input, net->first->weight.detach().t()).requires_grad_();
    at::Tensor hidden = torch::tanh(y1);
    at::Tensor taken;
    at::Tensor y2;
    if (seen > 0) {
      taken = hidden.narrow(0, 0, seen);
      y2 = torch::mm(taken, net->expert->weight.detach().t()) + net->expert->bias.detach();
      y2.retain_grad();
      hidden = torch::cat({torch::tanh(y2), hidden.narrow(0, seen, all - seen)});
    }
    at::Tensor y3 = torch::mm(hidden, net->last->weight.detach().t()) + net->last->bias.detach();
    y3.retain_grad();
    uneven_loss(y3).backward();
    sums[0].add(input, y1.grad(), false, all);
    if (seen > 0) sums[1].add(taken, y2.grad(), true, all);
    sums[2].add(hidden, y3.grad(), true, all);
  }
  return sums;
}

// Preconditioned gradients of all layers after each step, [out, in | bias].
std::vector<std::array<at::Tensor, 3>> expected_gradients(const ExpertRows& rows) {
  std::array<at::Tensor, 3> means_a;
  std::array<at::Tensor, 3> means_g;
  std::vector<std::array<at::Tensor, 3>> result;
  for (std::size_t step = 0; step < rows.size(); ++step) {
    const std::array<LayerSums, 3> sums = sums_of_step(step, rows);
    result.emplace_back();
    for (std::size_t layer = 0; layer < 3; ++layer) {
      if (sums[layer].examples == 0) continue;  // nobody called it: no gradient, the same average
      const auto average = [&](at::Tensor& mean, const at::Tensor& sum) {
        const at::Tensor fresh = sum / sums[layer].examples;
        mean = mean.defined() ? kUnevenDecay * mean + (1 - kUnevenDecay) * fresh : fresh;
        return mean + kUnevenDamping * at::eye(mean.size(0), at::kDouble);
      };
      const at::Tensor a = average(means_a[layer], sums[layer].a);
      const at::Tensor g = average(means_g[layer], sums[layer].g);
      result.back()[layer] = at::linalg_solve(g, sums[layer].gradient.mm(at::linalg_inv(a)));
    }
  }
  return result;
}

at::Tensor joined_gradient_of(const torch::nn::Module& module) {
  const auto parameters = module.named_parameters(false);
  const at::Tensor weight = parameters["weight"].grad();
  if (!parameters.contains("bias")) return weight.clone();
  return torch::cat({weight, parameters["bias"].grad().unsqueeze(1)}, 1);
}

CostModel uneven_costs() {
  CostModel costs = affine_costs(kUnevenRanks, 2e-6, 1e-8, CubicInverse{1e-5, 0, 0, 1e-7});
  costs.compute = ComputeRates{FlopsPerSecond(1e9), FlopsPerSecond(1e9), FlopsPerSecond(1e9)};
  return costs;
}

struct UnevenRun {
  bool partial = false;
  std::int64_t profile_steps = 0;
  bool thrown = false;          // a pass before each whose gradients are thrown away
  bool call_with_none = false;  // the expert, where it has no rows
};

void expect_joined_batch(const std::string& algorithm, const ExpertRows& rows,
                         const UnevenRun& run = {}) {
  const auto expected = expected_gradients(rows);
  run_ranks(kUnevenRanks, [&](const std::shared_ptr<Communicator>& communicator) {
    const auto rank = static_cast<std::size_t>(communicator->rank());
    ExpertNet net;
    std::vector<TrackedLayer> layers = tracked_layers(*net);
    layers.at(1).partial = run.partial;
    net->call_with_none = run.call_with_none;
    Distribution distribution;
    distribution.communicator = communicator;
    distribution.plans = PlanForCosts{uneven_costs(), preset(algorithm)};
    distribution.profile_steps = run.profile_steps;
    const KfacOptions options{.damping = kUnevenDamping,
                              .damping_mode = Damping::kPlain,
                              .running_average = kUnevenDecay,
                              .kl_clip = 0};
    Preconditioner kfac(layers, net->parameters(), options, distribution);
    for (std::size_t step = 0; step < rows.size(); ++step) {
      if (run.thrown) uneven_loss(net->forward(uneven_input(step + 7, 0), 6)).backward();
      net->zero_grad();
      const at::Tensor input = uneven_input(step, communicator->rank());
      uneven_loss(net->forward(input, rows[step][rank])).backward();
      kfac.step(0.1);
      for (std::size_t layer = 0; layer < 3; ++layer) {
        const at::Tensor found = joined_gradient_of(*net->named_children()[kUnevenLayers[layer]]);
        const at::Tensor& wanted = expected[step][layer];
        const double error = (wanted.defined() ? found - wanted : found).abs().max().item<double>();
        EXPECT_LT(error, 1e-10) << algorithm << ", step " << step << ", rank " << rank << ", "
                                << kUnevenLayers[layer];
      }
    }
    EXPECT_EQ(kfac.counters().nonfinite_factors, 0);
    EXPECT_EQ(kfac.counters().layers_without_factors, 0);
  });
}

constexpr std::array kUnevenAlgorithms = {"d-kfac",       "mpd-kfac",           "spd-kfac", "naive",
                                          "owner-reduce", "owner-precondition", "auto"};

TEST_F(UnevenRanks, BatchesOfDifferentSizesAreWeightedByTheirExamples) {
  for (const char* algorithm : kUnevenAlgorithms) {
    expect_joined_batch(algorithm, {{6, 2}, {6, 2}, {6, 2}});
  }
}

TEST_F(UnevenRanks, ALayerThatOneRankCallsHasTheFactorsOfThatRank) {
  for (const char* algorithm : kUnevenAlgorithms) {
    // From the first step on; later; in turn; nobody.
    expect_joined_batch(algorithm, {{6, 0}, {6, 0}, {6, 2}, {0, 2}});
    expect_joined_batch(algorithm, {{0, 2}, {6, 0}, {0, 0}, {6, 2}});
    expect_joined_batch(algorithm, {{6, 2}, {0, 2}, {6, 0}, {0, 0}});
    expect_joined_batch(algorithm, {{0, 0}, {6, 0}, {6, 2}});
  }
}

TEST_F(UnevenRanks, APartialLayerCountsTheRowsOfAllRanks) {
  for (const char* algorithm : kUnevenAlgorithms) {
    expect_joined_batch(algorithm, {{4, 1}, {1, 2}, {0, 1}, {5, 0}}, {.partial = true});
  }
}

// As if it had not been called: no rows are no examples, and no factor.
TEST_F(UnevenRanks, ALayerThatIsCalledWithoutRowsAddsNothing) {
  for (const char* algorithm : kUnevenAlgorithms) {
    for (const bool partial : {false, true}) {
      const UnevenRun run{.partial = partial, .call_with_none = true};
      expect_joined_batch(algorithm, {{6, 0}, {0, 2}, {0, 0}, {6, 2}}, run);
      expect_joined_batch(algorithm, {{0, 0}, {0, 2}, {6, 0}}, run);
    }
    expect_joined_batch(algorithm, {{4, 0}, {0, 1}, {5, 2}},
                        {.partial = true, .call_with_none = true});
  }
}

// A pass whose gradients are thrown away before the next one, as that of a GAN's generator.
TEST_F(UnevenRanks, APassThatIsThrownAwayCountsOnNoRank) {
  for (const char* algorithm : kUnevenAlgorithms) {
    expect_joined_batch(algorithm, {{6, 2}, {6, 2}, {6, 0}, {6, 2}}, {.thrown = true});
  }
}

TEST_F(UnevenRanks, PlansAreMadeAgainFromTheTimesOfRanksThatDiffer) {
  for (const char* algorithm : {"spd-kfac", "owner-precondition", "auto"}) {
    expect_joined_batch(algorithm, {{6, 0}, {6, 0}, {6, 0}, {6, 2}, {6, 0}}, {.profile_steps = 2});
  }
}

}  // namespace
}  // namespace spdkfac
