// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/mirrored_peers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spdkfac/base/check.h"
#include "spdkfac/comm/agreement.h"

namespace spdkfac {
namespace {

TEST(MirroredPeers, HoldWhatThisRankHolds) {
  comm::MirroredPeers peers(1, 4);
  EXPECT_EQ(peers.rank(), 1);
  EXPECT_EQ(peers.size(), 4);
  const at::Tensor sum = at::full({3}, 2.0);
  peers.all_reduce_async(sum, "sum").wait();
  EXPECT_TRUE(at::equal(sum, at::full({3}, 8.0)));
  const at::Tensor at_root = at::full({3}, 2.0);
  peers.reduce_async(at_root, 1, "sum at the root").wait();
  EXPECT_TRUE(at::equal(at_root, at::full({3}, 8.0)));
  const at::Tensor all = at::empty({4, 2});
  peers.all_gather_async(at::tensor({1.0F, 2.0F}), all, "all").wait();
  EXPECT_TRUE(at::equal(all, at::tensor({1.0F, 2.0F}).expand({4, 2})));
  peers.barrier("nothing to wait for");
  comm::require_same(peers, "the plan", "digest");
}

TEST(MirroredPeers, BroadcastZerosFromOtherRoots) {
  comm::MirroredPeers peers(1, 4);
  const at::Tensor mine = at::full({3}, 2.0);
  peers.broadcast_async(mine, 1, "from here").wait();
  EXPECT_TRUE(at::equal(mine, at::full({3}, 2.0)));
  peers.broadcast_async(mine, 3, "from there").wait();
  EXPECT_TRUE(at::equal(mine, at::zeros({3})));
}

// 10 floats, counted as in every back end: all_reduce sends 2·3/4 of 40 bytes, broadcast 3/4.
TEST(MirroredPeers, CountTheTrafficOfTheWholeGroup) {
  comm::MirroredPeers peers(0, 4);
  peers.all_reduce_async(at::zeros({10}), "sum").wait();
  EXPECT_DOUBLE_EQ(peers.traffic().sent, 60);
  peers.broadcast_async(at::zeros({10}), 2, "from there").wait();
  EXPECT_DOUBLE_EQ(peers.traffic().sent, 90);
}

TEST(MirroredPeers, RankIsOneOfThem) {
  EXPECT_THROW(comm::MirroredPeers(4, 4), InternalError);
  EXPECT_THROW(comm::MirroredPeers(-1, 4), InternalError);
}

}  // namespace
}  // namespace spdkfac
