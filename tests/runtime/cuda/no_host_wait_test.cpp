// SPDX-License-Identifier: Apache-2.0
// A step on a GPU never waits for it: with a long kernel queued in front, the host gets through
// forward, backward, K-FAC and update while that kernel still runs.
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/kfac_fixture.h"
#include "spdkfac/models/model.h"

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

// While it lives, whatever makes the host wait for the GPU throws.
class WaitsAreErrors {
 public:
  WaitsAreErrors() { set(c10::cuda::SyncDebugMode::L_ERROR); }
  ~WaitsAreErrors() { set(c10::cuda::SyncDebugMode::L_DISABLED); }
  WaitsAreErrors(const WaitsAreErrors&) = delete;
  WaitsAreErrors& operator=(const WaitsAreErrors&) = delete;

 private:
  static void set(c10::cuda::SyncDebugMode mode) {
    c10::cuda::warning_state().set_sync_debug_mode(mode);
  }
};

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
  {
    const WaitsAreErrors strict;
    for (int step = 0; step < 3; ++step) run_step(model, kfac, optimizer, batch);
  }
  EXPECT_FALSE(c10::cuda::getCurrentCUDAStream().query());
  torch::cuda::synchronize();
  EXPECT_EQ(kfac.counters().steps, 8);
  EXPECT_EQ(kfac.counters().nonfinite_gradients, 0);
}

// More kernels than a GPU's queue takes, so that a long one in front would prove nothing.
TEST(NoHostWait, NoStepOfALargeNetworkAsksForIt) {
  ASSERT_TRUE(on_cuda()) << "run with SPDKFAC_TEST_DEVICE=cuda";
  for (const char* name : {"resnet50", "resnet152", "densenet201", "inception-v4"}) {
    SCOPED_TRACE(name);
    const std::shared_ptr<models::Model> model = models::make_model(name);
    model->to(at::kCUDA);
    Preconditioner kfac(*model, {.factor_interval = 1, .inverse_interval = 1});
    torch::optim::SGD optimizer(model->parameters(), 0.01);
    const at::Tensor images = torch::randn({2, 3, 224, 224}, at::kCUDA);
    const at::Tensor labels = torch::zeros({2}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
    const auto step = [&] {
      optimizer.zero_grad();
      torch::cross_entropy_loss(model->forward(images), labels).backward();
      kfac.step(0.01);
      optimizer.step();
    };
    for (int warm = 0; warm < 4; ++warm) step();
    {
      const WaitsAreErrors strict;
      for (int index = 0; index < 2; ++index) EXPECT_NO_THROW(step());
    }
    torch::cuda::synchronize();
    EXPECT_EQ(kfac.counters().steps, 6);
  }
}

}  // namespace
}  // namespace spdkfac
