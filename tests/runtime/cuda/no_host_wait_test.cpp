// SPDX-License-Identifier: Apache-2.0
// A step on a GPU never waits for it: with a long kernel queued in front, the host gets through
// forward, backward, K-FAC and update while that kernel still runs.
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/kfac_fixture.h"

namespace spdkfac {
namespace {

using namespace support;

// About three seconds on an H200; a step of this network takes milliseconds.
constexpr std::int64_t kSleepCycles = 6'000'000'000;

void run_step(TinyNet& model, Preconditioner& kfac, torch::optim::SGD& optimizer,
              const Batch& batch) {
  optimizer.zero_grad();
  loss_of(model, batch).backward();
  kfac.step(0.01);
  optimizer.step();
}

TEST(NoHostWait, AStepIsQueuedWhileTheGpuIsBusy) {
  ASSERT_TRUE(on_cuda()) << "run with SPDKFAC_TEST_DEVICE=cuda";
  TinyNet model;
  Preconditioner kfac(*model, {});
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  const Batch batch = random_batch(8);
  // Libraries make their handles and allocators their first blocks; pinned memory is kept.
  for (int step = 0; step < 5; ++step) run_step(model, kfac, optimizer, batch);
  torch::cuda::synchronize();

  at::cuda::sleep(kSleepCycles);
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
  for (int step = 0; step < 3; ++step) run_step(model, kfac, optimizer, batch);
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
  EXPECT_FALSE(c10::cuda::getCurrentCUDAStream().query());
  torch::cuda::synchronize();
  EXPECT_EQ(kfac.counters().steps, 8);
  EXPECT_EQ(kfac.counters().nonfinite_gradients, 0);
}

}  // namespace
}  // namespace spdkfac
