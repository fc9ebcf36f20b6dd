// SPDX-License-Identifier: Apache-2.0
// Checks and counts of the interface, and what the logged communicator keeps.
#include "spdkfac/comm/communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spdkfac/base/check.h"
#include "spdkfac/comm/logged_communicator.h"

namespace spdkfac {
namespace {

TEST(Communicator, TensorsThatCannotTravelAreOurMistake) {
  const auto comm = make_local_communicator();
  const auto start = [&](const at::Tensor& tensor) {
    comm->all_reduce_async(tensor, "bad").wait();
  };
  EXPECT_THROW(start(at::Tensor()), InternalError);
  EXPECT_THROW(start(at::zeros({3, 4}).t()), InternalError);
  EXPECT_THROW(start(at::zeros({3}, at::kInt)), InternalError);
  EXPECT_THROW(start(at::zeros({3}, at::kHalf)), InternalError);
  EXPECT_THROW(start(at::zeros({3}, at::kBool)), InternalError);
  EXPECT_EQ(comm->traffic().operations, 0);
}

TEST(Communicator, RootsAreRanks) {
  const auto comm = make_local_communicator();
  const at::Tensor tensor = at::zeros({3});
  EXPECT_THROW(comm->reduce_async(tensor, 1, "bad").wait(), InternalError);
  EXPECT_THROW(comm->broadcast_async(tensor, -1, "bad").wait(), InternalError);
}

TEST(Communicator, AGatherNeedsARowForEachRank) {
  const auto comm = make_local_communicator();
  const auto gather = [&](const at::Tensor& all) {
    comm->all_gather_async(at::zeros({3}), all, "bad").wait();
  };
  EXPECT_THROW(gather(at::Tensor()), InternalError);
  EXPECT_THROW(gather(at::zeros({3})), InternalError);
  EXPECT_THROW(gather(at::zeros({2, 3})), InternalError);
  EXPECT_THROW(gather(at::zeros({1, 3}, at::kDouble)), InternalError);
  EXPECT_NO_THROW(gather(at::zeros({1, 3})));
}

TEST(Communicator, OperationsHaveNames) {
  EXPECT_STREQ(operation_name(Operation::kAllReduce), "all_reduce");
  EXPECT_STREQ(operation_name(Operation::kReduce), "reduce");
  EXPECT_STREQ(operation_name(Operation::kBroadcast), "broadcast");
  EXPECT_STREQ(operation_name(Operation::kAllGather), "all_gather");
  EXPECT_STREQ(operation_name(Operation::kBarrier), "barrier");
}

TEST(Communicator, AWorkWithoutAnOperationIsDone) {
  const Work work;
  work.wait();
  EXPECT_TRUE(work.done());
  EXPECT_FALSE(work.span());
}

TEST(LoggedCommunicator, KeepsTheCallsInTheirOrder) {
  using Call = comm::LoggedCommunicator::Call;
  comm::LoggedCommunicator comm(make_local_communicator());
  const at::Tensor tensor = at::zeros({2, 3});
  const at::Tensor all = at::zeros({1, 6});
  comm.all_reduce_async(tensor, "sum").wait();
  comm.reduce_async(tensor, 0, "to the owner").wait();
  comm.broadcast_async(tensor.view(-1), 0, "from the owner").wait();
  comm.all_gather_async(tensor, all, "rows").wait();
  comm.barrier("end");
  const std::vector<Call> expected{{Operation::kAllReduce, 6, 0, "sum"},
                                   {Operation::kReduce, 6, 0, "to the owner"},
                                   {Operation::kBroadcast, 6, 0, "from the owner"},
                                   {Operation::kAllGather, 6, 0, "rows"},
                                   {Operation::kBarrier, 0, 0, "end"}};
  EXPECT_EQ(comm.calls(), expected);
  comm.clear();
  EXPECT_TRUE(comm.calls().empty());
}

}  // namespace
}  // namespace spdkfac
