// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/runtime/distribution.h"
#include "support/device.h"
#include "support/models.h"

// Tests whose ranks are threads of this process.
namespace spdkfac::support {

class ThreadRanksTest : public testing::Test {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "ranks that are threads take tensors of the CPU";
    at::set_num_threads(1);
  }
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

// Parameters in double precision and not at random: the generator is shared by all threads.
inline void set_parameters(torch::nn::Module& module, double size = 1) {
  module.to(at::kDouble);
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) {
    parameter.copy_(torch::arange(1, parameter.numel() + 1, at::kDouble)
                        .mul(0.7)
                        .sin()
                        .mul(size)
                        .view(parameter.sizes()));
  }
}

inline CostModel thread_costs(int world) {
  CostModel costs = affine_costs(world, 2e-6, 1e-8, CubicInverse{1e-5, 0, 0, 1e-7});
  costs.compute = ComputeRates{FlopsPerSecond(1e9), FlopsPerSecond(1e9), FlopsPerSecond(1e9)};
  return costs;
}

// A plan of the algorithm for these costs, never made again.
inline Distribution on_threads(const std::shared_ptr<Communicator>& communicator,
                               const std::string& algorithm) {
  Distribution distribution;
  distribution.communicator = communicator;
  distribution.plans = PlanForCosts{thread_costs(communicator->size()), preset(algorithm)};
  distribution.profile_steps = 0;
  return distribution;
}

}  // namespace spdkfac::support
