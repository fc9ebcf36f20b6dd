// SPDX-License-Identifier: Apache-2.0
// NCCL with one rank, or the refusal of two on one GPU under mpirun. The common suite has the rest.
#include "spdkfac/comm/nccl.h"

#include <array>
#include <chrono>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "comm/numbers.h"
#include "support/config_error.h"
#include "support/world.h"

namespace spdkfac {
namespace {

using support::world;

// About a second on an H200.
constexpr std::int64_t kSleepCycles = 2'000'000'000;

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    if (!built_with_nccl()) GTEST_SKIP() << "this build has no NCCL";
    if (!support::on_cuda()) GTEST_SKIP() << "run with SPDKFAC_TEST_DEVICE=cuda";
  }
};

class NcclAlone : public Nccl {
 protected:
  void SetUp() override {
    Nccl::SetUp();
    if (!IsSkipped() && world()->size() > 1) GTEST_SKIP() << "for one rank";
  }

  static std::shared_ptr<Communicator> make() {
    return make_nccl_communicator(world(), support::test_device());
  }
};

TEST_F(NcclAlone, TheHostNeverWaits) {
  const auto comm = make();
  const at::Tensor tensor = numbers::of_rank(0, 1000, at::kFloat);
  comm->all_reduce_async(tensor, "first").wait();  // NCCL connects and allocates
  c10::cuda::device_synchronize();

  at::cuda::sleep(kSleepCycles);
  const Work work = comm->all_reduce_async(tensor, "behind a long kernel");
  EXPECT_FALSE(work.done());
  work.wait();
  EXPECT_FALSE(c10::cuda::getCurrentCUDAStream().query());
  EXPECT_TRUE(at::equal(tensor, numbers::sum(1, 1000, at::kFloat)));
  EXPECT_TRUE(work.done());
}

TEST_F(NcclAlone, SpansAreOnTheHostsClock) {
  const auto comm = make();
  const at::Tensor tensor = numbers::of_rank(0, 1 << 20, at::kFloat);
  comm->all_reduce_async(tensor, "first").wait();
  c10::cuda::device_synchronize();
  const auto before = std::chrono::steady_clock::now();
  at::cuda::sleep(kSleepCycles / 10);
  const Work first = comm->all_reduce_async(tensor, "behind a long kernel");
  const Work second = comm->all_reduce_async(tensor, "behind the first");
  const auto spans = std::array{first.span().value(), second.span().value()};
  const auto slack = std::chrono::milliseconds(2);  // between the clocks
  EXPECT_GE(spans[0].begin, before + std::chrono::milliseconds(20)) << "the kernel takes longer";
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_LE(spans[0].end, spans[1].begin);
  EXPECT_LE(spans[1].end, std::chrono::steady_clock::now() + slack);
  EXPECT_FALSE(comm->all_reduce_async(tensor.narrow(0, 0, 0), "nothing").span());
}

TEST_F(NcclAlone, WorkOutlivesItsCommunicator) {
  const at::Tensor tensor = numbers::of_rank(0, 1000, at::kFloat);
  Work work;
  {
    const auto comm = make();
    at::cuda::sleep(kSleepCycles / 10);
    work = comm->all_reduce_async(tensor, "under way");
  }
  work.wait();
  EXPECT_TRUE(at::equal(tensor, numbers::sum(1, 1000, at::kFloat)));
}

TEST_F(NcclAlone, TensorsOfTheHostTravelByTheBootstrap) {
  const auto comm = make();
  const at::Tensor tensor = at::ones({3});
  comm->all_reduce_async(tensor, "host").wait();
  EXPECT_TRUE(at::equal(tensor, at::ones({3})));
  comm->barrier("end");
}

TEST_F(NcclAlone, ItNeedsAGpu) {
  support::expect_config_error([] { make_nccl_communicator(world(), at::kCPU); }, "is not a GPU");
}

TEST_F(Nccl, TwoRanksOnOneGpuAreAMistake) {
  if (world()->size() == 1) GTEST_SKIP() << "needs two ranks";
  support::expect_config_error([] { make_nccl_communicator(world(), support::test_device()); },
                               "ranks 0 and 1 use the same GPU, which NCCL does not support");
  // The bootstrap goes on.
  world()->barrier("end");
}

}  // namespace
}  // namespace spdkfac
