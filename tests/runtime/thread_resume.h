// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/thread_net.h"

namespace spdkfac::support {

// Trains two ranks up to a step, saves, goes on, and does the latter again from the state.
inline void expect_resumes(const std::string& algorithm, const KfacOptions& options,
                           std::size_t stop,
                           const std::function<void(Preconditioner&, std::size_t)>& before_step) {
  constexpr int kWorld = 2;
  const std::vector<at::Tensor> inputs = inputs_of(kWorld, 24);
  run_ranks(kWorld, [&](const std::shared_ptr<Communicator>& communicator) {
    Distribution distribution;
    distribution.communicator = communicator;
    distribution.plans = PlanForCosts{thread_costs(kWorld), preset(algorithm)};
    distribution.profile_steps = 0;
    const auto train = [&](ThreadNet& model, Preconditioner& kfac, std::size_t from,
                           std::size_t to) {
      for (std::size_t step = from; step < to; ++step) {
        if (before_step) before_step(kfac, step);
        thread_step(
            model, kfac,
            inputs[step].narrow(0, communicator->rank() * kThreadExamples, kThreadExamples));
      }
    };
    ThreadNet model;
    Preconditioner kfac(*model, options, distribution);
    train(model, kfac, 0, stop);
    const KfacState state = kfac.state().read_all();
    const at::Tensor there = flat_parameters(model);
    train(model, kfac, stop, inputs.size());

    ThreadNet again;
    Preconditioner resumed(*again, options, distribution);
    resumed.load(state);
    const torch::NoGradGuard no_grad;
    std::int64_t offset = 0;
    for (at::Tensor& parameter : again->parameters()) {
      parameter.copy_(there.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
      offset += parameter.numel();
    }
    const torch::AutoGradMode with_gradients(true);
    train(again, resumed, stop, inputs.size());
    EXPECT_TRUE(torch::equal(flat_parameters(again), flat_parameters(model)));
    EXPECT_EQ(digest(resumed.options()), digest(kfac.options()));
  });
}

}  // namespace spdkfac::support
