// SPDX-License-Identifier: Apache-2.0
// A step on a GPU never waits for it: with a long kernel queued in front, the host gets through
// forward, backward, K-FAC and update while that kernel still runs.
#include <functional>

#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/kfac_fixture.h"
#include "spdkfac/comm/emulated_link.h"
#include "spdkfac/comm/mirrored_peers.h"
#include "spdkfac/comm/nccl.h"
#include "spdkfac/models/model.h"
#include "support/models.h"

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

// One rank of two whose operations run through NCCL, on the one GPU there is: NCCL adds what this
// rank has to nothing. What CPU tensors say, and what ranks compare, is the same on both.
class TwoRanksOfNccl final : public Communicator {
 public:
  explicit TwoRanksOfNccl(std::shared_ptr<Communicator> alone) : alone_(std::move(alone)) {}
  int rank() const override { return 0; }
  int size() const override { return mirrored_.size(); }
  Work start(Request request) override {
    // Ranks compare numbers before the first step; whoever reads them waits.
    const bool compares = request.operation == Operation::kAllGather;
    if (!request.tensor.defined() || request.tensor.is_cpu() || compares) {
      return mirrored_.start(std::move(request));
    }
    request.root = 0;
    return alone_->start(std::move(request));
  }

 private:
  std::shared_ptr<Communicator> alone_;
  comm::MirroredPeers mirrored_{0, 2};
};

CostModel gpu_rank_costs() {
  CostModel costs = affine_costs(2, 2e-6, 1e-8, CubicInverse{1e-5, 0, 0, 1e-7});
  costs.compute = ComputeRates{FlopsPerSecond(1e9), FlopsPerSecond(1e9), FlopsPerSecond(1e9)};
  return costs;
}

void expect_no_wait_on_ranks(const std::shared_ptr<Communicator>& communicator,
                             const std::string& algorithm, bool send_gradients) {
  TinyNet model;
  Distribution distribution;
  distribution.communicator = communicator;
  distribution.plans = PlanForCosts{gpu_rank_costs(), preset(algorithm)};
  distribution.send_gradients = send_gradients;
  distribution.profile_steps = 0;  // plans that are made again wait for the times of layers
  Preconditioner kfac(*model, {}, distribution);
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  const Batch batch = random_batch(8);
  for (int step = 0; step < 5; ++step) run_step(model, kfac, optimizer, batch);
  torch::cuda::synchronize();
  const std::int64_t before = communicator->traffic().operations;
  at::cuda::sleep(kSleepCycles / 3);
  {
    const WaitsAreErrors strict;
    for (int step = 0; step < 3; ++step) run_step(model, kfac, optimizer, batch);
  }
  EXPECT_FALSE(c10::cuda::getCurrentCUDAStream().query());
  torch::cuda::synchronize();
  EXPECT_GT(communicator->traffic().operations, before);
  EXPECT_EQ(kfac.counters().steps, 8);
  EXPECT_EQ(kfac.counters().nonfinite_gradients, 0);
}

void expect_no_wait_on_ranks(
    const std::function<std::shared_ptr<Communicator>()>& make_communicator) {
  for (const char* algorithm : {"spd-kfac", "d-kfac", "owner-precondition", "sgd"}) {
    SCOPED_TRACE(algorithm);
    expect_no_wait_on_ranks(make_communicator(), algorithm, true);
  }
  SCOPED_TRACE("gradients averaged elsewhere");
  expect_no_wait_on_ranks(make_communicator(), "spd-kfac", false);
}

TEST(NoHostWait, AStepOfSeveralRanksIsQueuedWhileTheGpuIsBusy) {
  ASSERT_TRUE(on_cuda()) << "run with SPDKFAC_TEST_DEVICE=cuda";
  expect_no_wait_on_ranks([] { return std::make_shared<comm::MirroredPeers>(0, 2); });
}

TEST(NoHostWait, AStepBehindAnEmulatedLinkIsQueuedWhileTheGpuIsBusy) {
  ASSERT_TRUE(on_cuda()) << "run with SPDKFAC_TEST_DEVICE=cuda";
  expect_no_wait_on_ranks([] {
    return make_emulated_link(
        std::make_shared<comm::MirroredPeers>(0, 2),
        [](Operation, const Load&) { return Seconds(1e-5); }, test_device());
  });
}

TEST(NoHostWait, AStepThroughNcclIsQueuedWhileTheGpuIsBusy) {
  ASSERT_TRUE(on_cuda()) << "run with SPDKFAC_TEST_DEVICE=cuda";
  if (!built_with_nccl()) GTEST_SKIP() << "this build has no NCCL";
  expect_no_wait_on_ranks([] {
    return std::make_shared<TwoRanksOfNccl>(
        make_nccl_communicator(make_local_communicator(), test_device()));
  });
}

}  // namespace
}  // namespace spdkfac
