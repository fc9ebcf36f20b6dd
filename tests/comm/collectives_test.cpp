// SPDX-License-Identifier: Apache-2.0
// What every back end does, whatever the number of ranks.
#include <chrono>
#include <functional>
#include <ostream>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/backends.h"
#include "comm/numbers.h"

namespace spdkfac {
namespace {

struct Case {
  at::ScalarType type;
  std::int64_t elements;
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.elements << " of " << c10::toString(one.type);
}

// Every type with few elements, and the one that training sends with many.
std::vector<Case> cases(std::vector<at::ScalarType> types) {
  std::vector<Case> all{{at::kFloat, 3'000'000}};
  for (const at::ScalarType type : types) {
    for (const std::int64_t elements : {0, 1, 1000}) all.push_back({type, elements});
  }
  return all;
}

std::vector<Case> sums() { return cases({at::kFloat, at::kDouble, at::kLong}); }
std::vector<Case> copies() { return cases({at::kFloat, at::kDouble, at::kLong, at::kByte}); }

class Collectives : public testing::TestWithParam<Backend> {
 protected:
  // Runs the body on every rank that this process has.
  static void on_ranks(const std::function<void(Communicator&)>& body) {
    GetParam().run([&](const std::shared_ptr<Communicator>& comm) { body(*comm); });
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, Collectives, testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Collectives, AllReduceIsTheSumOverTheRanks) {
  on_ranks([](Communicator& comm) {
    const int rank = comm.rank();
    const int size = comm.size();
    for (const auto& [type, elements] : sums()) {
      const at::Tensor tensor = numbers::of_rank(rank, elements, type);
      comm.all_reduce_async(tensor, "sum").wait();
      EXPECT_TRUE(at::equal(tensor, numbers::sum(size, elements, type))) << Case{type, elements};
    }
  });
}

TEST_P(Collectives, AllReduceKeepsTheShape) {
  on_ranks([](Communicator& comm) {
    const int rank = comm.rank();
    const int size = comm.size();
    const at::Tensor tensor = numbers::of_rank(rank, 24, at::kFloat).view({2, 3, 4});
    comm.all_reduce_async(tensor, "sum").wait();
    EXPECT_TRUE(at::equal(tensor, numbers::sum(size, 24, at::kFloat).view({2, 3, 4})));
  });
}

TEST_P(Collectives, ReduceIsTheSumAtEachRoot) {
  on_ranks([](Communicator& comm) {
    const int rank = comm.rank();
    const int size = comm.size();
    for (const auto& [type, elements] : sums()) {
      for (int root = 0; root < size; ++root) {
        const at::Tensor tensor = numbers::of_rank(rank, elements, type, root);
        comm.reduce_async(tensor, root, "sum").wait();
        if (rank != root) continue;
        EXPECT_TRUE(at::equal(tensor, numbers::sum(size, elements, type, root)))
            << Case{type, elements};
      }
    }
  });
}

TEST_P(Collectives, BroadcastCopiesTheTensorOfEachRoot) {
  on_ranks([](Communicator& comm) {
    const int rank = comm.rank();
    const int size = comm.size();
    for (const auto& [type, elements] : copies()) {
      for (int root = 0; root < size; ++root) {
        const at::Tensor tensor = numbers::of_rank(rank, elements, type, root);
        comm.broadcast_async(tensor, root, "copy").wait();
        EXPECT_TRUE(at::equal(tensor, numbers::of_rank(root, elements, type, root)))
            << Case{type, elements} << " from " << root;
      }
    }
  });
}

TEST_P(Collectives, AllGatherPutsTheTensorOfEachRankInItsRow) {
  on_ranks([](Communicator& comm) {
    const int rank = comm.rank();
    const int size = comm.size();
    for (const auto& [type, elements] : copies()) {
      const at::Tensor tensor = numbers::of_rank(rank, elements, type, 5);
      const at::Tensor all = at::zeros({size, elements}, tensor.options());
      comm.all_gather_async(tensor, all, "gather").wait();
      EXPECT_TRUE(at::equal(all, numbers::gathered(size, elements, type, 5)))
          << Case{type, elements};
      EXPECT_TRUE(at::equal(tensor, numbers::of_rank(rank, elements, type, 5)));
    }
  });
}

TEST_P(Collectives, WhatRequiresAGradientTravelsToo) {
  on_ranks([](Communicator& comm) {
    const int rank = comm.rank();
    at::Tensor parameter = numbers::of_rank(rank, 10, at::kFloat).requires_grad_();
    comm.broadcast_async(parameter, 0, "parameter").wait();
    EXPECT_TRUE(at::equal(parameter, numbers::of_rank(0, 10, at::kFloat)));
  });
}

// Ranks on one machine have one steady clock, so their times can be compared.
TEST_P(Collectives, NoRankLeavesABarrierBeforeTheLastHasCome) {
  on_ranks([](Communicator& comm) {
    const int rank = comm.rank();
    const int size = comm.size();
    const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * rank));
    const at::Tensor mine = at::empty({2}, at::kLong);
    mine[0] = now();
    comm.barrier("all are here");
    mine[1] = now();
    const at::Tensor all = at::empty({size, 2}, support::test_options(at::kLong));
    comm.all_gather_async(mine.to(support::test_device()), all, "times").wait();
    EXPECT_LE(all.select(1, 0).max().item<std::int64_t>(),
              all.select(1, 1).min().item<std::int64_t>());
  });
}

// Traffic's own formulas, for a payload of 4000 bytes in each.
TEST_P(Collectives, TrafficIsCounted) {
  on_ranks([](Communicator& comm) {
    const int size = comm.size();
    const Traffic before = comm.traffic();
    const at::Tensor tensor = at::zeros({1000}, support::test_options(at::kFloat));
    const at::Tensor all = at::zeros({size, 1000}, tensor.options());
    comm.all_reduce_async(tensor, "a").wait();
    comm.reduce_async(tensor, 0, "b").wait();
    comm.broadcast_async(tensor, 0, "c").wait();
    comm.all_gather_async(tensor, all, "d").wait();
    comm.barrier("e");
    const Traffic after = comm.traffic();
    EXPECT_EQ(after.operations - before.operations, 4);
    EXPECT_EQ((after.payload - before.payload).value(), 4 * 4000);
    const double others = size - 1;
    const double expected = 4000 * (2 * others / size + 2 * (others / size) + others);
    EXPECT_NEAR(after.sent - before.sent, expected, 1e-6);
  });
}

}  // namespace
}  // namespace spdkfac
