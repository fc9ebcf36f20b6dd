// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/memory_forecast.h"

#include <array>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/kfac_fixture.h"
#include "runtime/thread_ranks.h"
#include "spdkfac/comm/threads.h"
#include "spdkfac/runtime/preconditioner.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)
using MemoryOfRanks = ThreadRanksTest;

Bytes total_of(const KfacMemory& memory) {
  return memory.factors + memory.inverses + memory.buffers;
}

runtime::MemoryForecast forecast_of(const std::vector<TrackedLayer>& layers,
                                    const KfacOptions& options) {
  return runtime::forecast_memory(layers, options,
                                  [](runtime::FactorId) { return runtime::KeptParts{}; });
}

TEST(MemoryForecast, IsWhatOneRankHoldsAfterAStep) {
  if (on_cuda()) GTEST_SKIP() << "batches of inverses have buffers of their own";
  for (const std::int64_t limit : {2, 8, 100}) {
    for (const LargeFactors large : {LargeFactors::kDiagonal, LargeFactors::kBlocks}) {
      KfacOptions options{.max_dimension = limit, .large_factors = large};
      TinyNet model;
      Preconditioner kfac(*model, options);
      loss_of(model, random_batch(4)).backward();
      kfac.step(0.1);
      EXPECT_EQ(forecast_of(kfac.layers(), options).total(), total_of(kfac.memory()));
    }
  }
}

TEST(MemoryForecast, CountsSumsAveragesInversesAndMoments) {
  const std::vector<TrackedLayer> layers = {{.name = "one",
                                             .weight = torch::zeros({5, 3}, at::kDouble),
                                             .bias = torch::zeros({5}, at::kDouble)}};
  KfacOptions options{.kl_clip = 0};
  // A of 4 rows and G of 5, each as a sum, an average and an inverse; scratch for 3 gradients.
  EXPECT_EQ(forecast_of(layers, options).layers.at(0), Bytes(8 * 3 * (16 + 25)));
  EXPECT_EQ(forecast_of(layers, options).scratch, Bytes(8 * 3 * 20));
  options.graft = Graft::kAdam;
  EXPECT_EQ(forecast_of(layers, options).layers.at(0), Bytes(8 * (3 * (16 + 25) + 2 * 20)));
  options.graft = Graft::kNone;
  // Eigenvectors have eigenvalues, and moments of the whole gradient.
  for (const auto& [solver, more] :
       {std::pair(Solver::kEigen, 4 + 5), std::pair(Solver::kEkfac, 4 + 5 + 20),
        std::pair(Solver::kAdam, 4 + 5 + 2 * 20)}) {
    options.solver = solver;
    EXPECT_EQ(forecast_of(layers, options).layers.at(0), Bytes(8 * (3 * (16 + 25) + more)));
  }
  options.solver = Solver::kInverse;
  options.graft = Graft::kAdam;
  const auto sums = runtime::forecast_memory(layers, options, [](runtime::FactorId) {
    return runtime::KeptParts{false, false};
  });
  EXPECT_EQ(sums.layers.at(0), Bytes(8 * (16 + 25)));
}

TEST(MemoryForecast, WhatDoesNotFitIsRefusedBeforeItIsTaken) {
  torch::nn::Sequential model(torch::nn::Linear(torch::nn::LinearOptions(1000, 4).bias(false)),
                              torch::nn::Linear(torch::nn::LinearOptions(4, 2).bias(false)));
  model->to(test_device(), at::kDouble);
  KfacOptions options;
  const Bytes need = forecast_of(tracked_layers(*model), options).total();
  EXPECT_GT(need, Bytes(3 * 8 * 1000 * 1000));
  options.memory_limit = need;
  EXPECT_NO_THROW(Preconditioner(*model, options));
  options.memory_limit = need - Bytes(1);
  // Whole factors of 1000 rows take 24 MB; 8192, 4096, 2048 and 1024 leave them whole, 512 does
  // not.
  expect_config_error([&] { Preconditioner(*model, options); },
                      "are allowed (memory_limit) (largest layers: 0 24.0 MB, 1 0.0 MB); pass "
                      "max_dimension=512, which would fit, or leave layers out (skip_layers=)");
  options.memory_limit = Bytes(100);
  expect_config_error([&] { Preconditioner(*model, options); },
                      "1 0.0 MB); leave layers out (skip_layers=)");
  options.memory_limit = Bytes(0);
  expect_config_error([&] { Preconditioner(*model, options); }, "kfac: memory_limit=0; pass");
}

TEST(MemoryForecast, KnowsWhatIsFree) {
  const std::optional<Bytes> free = runtime::free_memory(test_device());
  ASSERT_TRUE(free.has_value());
  EXPECT_GT(*free, kMebibyte);
}

// At the start sums are counted, at the first step what the plan leaves with each rank.
TEST_F(MemoryOfRanks, IsRefusedOnAllOfThemWhenOneLacksIt) {
  for (const double share : {0.5, 1.5}) {
    std::array<std::string, 2> errors;
    run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
      torch::nn::Linear model(torch::nn::LinearOptions(30, 4).bias(false));
      model->to(at::kDouble);
      const auto sums = runtime::forecast_memory(tracked_layers(*model), {}, [](runtime::FactorId) {
        return runtime::KeptParts{false, false};
      });
      KfacOptions options;
      if (communicator->rank() == 1) {
        options.memory_limit =
            Bytes(static_cast<std::int64_t>(share * static_cast<double>(sums.total().value())));
      }
      errors.at(static_cast<std::size_t>(communicator->rank())) = config_error([&] {
        Preconditioner kfac(*model, options, on_threads(communicator, "d-kfac"));
        model(torch::ones({3, 30}, at::kDouble)).square().mean().backward();
        kfac.step(0.1);
      });
    });
    EXPECT_NE(errors[1].find("are allowed (memory_limit)"), std::string::npos) << errors[1];
    EXPECT_NE(errors[0].find("the memory that factors take"), std::string::npos) << errors[0];
  }
}

}  // namespace
}  // namespace spdkfac
