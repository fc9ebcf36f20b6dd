// SPDX-License-Identifier: Apache-2.0
// What only MPI has: initialisation once per process, and pieces. Runs under mpirun only.
#include "spdkfac/comm/mpi.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/numbers.h"
#include "spdkfac/comm/agreement.h"
#include "support/config_error.h"
#include "support/world.h"

namespace spdkfac {
namespace {

using support::world;
using support::world_with;

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (!launched_by_mpi()) GTEST_SKIP() << "not under mpirun";
  }
  void TearDown() override { support::drop_world(); }
};

TEST_F(Mpi, DestructionWaitsForOperationsUnderWay) {
  std::vector<Work> works;
  std::vector<at::Tensor> tensors;
  const int rank = world()->rank();
  const int size = world()->size();
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(numbers::of_rank(rank, 100'000, at::kFloat, i));
    works.push_back(world()->all_reduce_async(tensors.back(), "under way"));
  }
  support::drop_world();
  for (int i = 0; i < 20; ++i) {
    const auto index = static_cast<std::size_t>(i);
    EXPECT_TRUE(support::on_cuda() || works[index].done());
    works[index].wait();
    EXPECT_TRUE(at::equal(tensors[index], numbers::sum(size, 100'000, at::kFloat, i)));
  }
}

// Sums of all sizes at once, larger and smaller than a piece, mixed with other operations: pieces
// of one must not be taken for pieces of another.
TEST_F(Mpi, ManySumsUnderWayDoNotMix) {
  const int rank = world()->rank();
  const int size = world()->size();
  const std::vector<std::int64_t> sizes{1, 70'000, 300'000, 0, 65'536, 1'000'000, 12'345};
  std::vector<Work> works;
  std::vector<at::Tensor> sums;
  std::vector<at::Tensor> copies;
  for (int i = 0; i < 14; ++i) {
    const std::int64_t elements = sizes[static_cast<std::size_t>(i) % sizes.size()];
    sums.push_back(numbers::of_rank(rank, elements, at::kFloat, i));
    works.push_back(world()->all_reduce_async(sums.back(), "sum"));
    copies.push_back(numbers::of_rank(rank, 1000, at::kFloat, i));
    works.push_back(world()->broadcast_async(copies.back(), i % size, "copy"));
  }
  for (Work& work : works) work.wait();
  for (int i = 0; i < 14; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const std::int64_t elements = sizes[index % sizes.size()];
    EXPECT_TRUE(at::equal(sums[index], numbers::sum(size, elements, at::kFloat, i))) << i;
    EXPECT_TRUE(at::equal(copies[index], numbers::of_rank(i % size, 1000, at::kFloat, i))) << i;
  }
}

TEST_F(Mpi, AnotherCommunicatorFollowsTheFirst) {
  for (int round = 0; round < 5; ++round) {
    const auto comm = world_with({});
    const at::Tensor tensor = numbers::of_rank(comm->rank(), 10, at::kLong, round);
    comm->all_reduce_async(tensor, "round").wait();
    EXPECT_TRUE(at::equal(tensor, numbers::sum(comm->size(), 10, at::kLong, round)));
  }
}

TEST_F(Mpi, TwoCommunicatorsAtATimeAreAMistake) {
  const auto first = world();
  support::expect_config_error([] { make_mpi_communicator(); },
                               "already has an MPI communicator; share it");
}

// 100 elements in pieces of 7: fourteen whole pieces and a remainder.
TEST_F(Mpi, LargeOperationsTravelInPieces) {
  const auto comm = world_with({.timeout = CommOptions().timeout, .max_piece_elements = 7});
  const int rank = comm->rank();
  const int size = comm->size();
  const int root = size - 1;
  const at::Tensor all_reduced = numbers::of_rank(rank, 100, at::kFloat);
  comm->all_reduce_async(all_reduced, "sum").wait();
  EXPECT_TRUE(at::equal(all_reduced, numbers::sum(size, 100, at::kFloat)));
  const at::Tensor reduced = numbers::of_rank(rank, 100, at::kDouble);
  comm->reduce_async(reduced, root, "sum").wait();
  EXPECT_TRUE(rank != root || at::equal(reduced, numbers::sum(size, 100, at::kDouble)));
  const at::Tensor copied = numbers::of_rank(rank, 100, at::kByte);
  comm->broadcast_async(copied, root, "copy").wait();
  EXPECT_TRUE(at::equal(copied, numbers::of_rank(root, 100, at::kByte)));
  const at::Tensor mine = numbers::of_rank(rank, 100, at::kLong);
  const at::Tensor all = at::zeros({size, 100}, mine.options());
  comm->all_gather_async(mine, all, "gather").wait();
  EXPECT_TRUE(at::equal(all, numbers::gathered(size, 100, at::kLong)));
}

TEST_F(Mpi, SpansFollowTheQueue) {
  // Operations of more than a mebibyte run alone, so their spans are disjoint and in order.
  std::vector<Work> works;
  for (int i = 0; i < 5; ++i) {
    works.push_back(
        world()->all_reduce_async(numbers::of_rank(world()->rank(), 400'000, at::kFloat), "large"));
  }
  for (const Work& work : works) work.wait();
  for (std::size_t i = 1; i < works.size(); ++i) {
    EXPECT_LE(works[i - 1].span()->end, works[i].span()->begin);
  }
}

}  // namespace
}  // namespace spdkfac
