// SPDX-License-Identifier: Apache-2.0
// Many operations under way: their order, and when they are done.
#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/backends.h"
#include "comm/numbers.h"

namespace spdkfac {
namespace {

class Queue : public testing::TestWithParam<Backend> {
 protected:
  // Runs the body on every rank that this process has.
  static void on_ranks(const std::function<void(Communicator&)>& body) {
    GetParam().run([&](const std::shared_ptr<Communicator>& comm) { body(*comm); });
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, Queue, testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

struct Pending {
  Work work;
  at::Tensor actual;
  at::Tensor expected;  // undefined where the result is
};

// Whole numbers from `engine`; distributions differ between libraries.
std::int64_t pick(std::mt19937& engine, std::int64_t count) {
  return static_cast<std::int64_t>(engine()) % count;
}

Pending start_random(Communicator& comm, std::mt19937& engine, std::int64_t number) {
  // Mostly small ones, which share the link; 300'000 are more than a mebibyte.
  const std::int64_t elements[] = {0, 1, 10, 100, 1000, 3000, 20'000, 300'000};
  const at::ScalarType types[] = {at::kFloat, at::kDouble, at::kLong};
  const std::int64_t kind = pick(engine, 4);
  const std::int64_t n = elements[pick(engine, 8)];
  const at::ScalarType type = types[pick(engine, 3)];
  const int root = static_cast<int>(pick(engine, comm.size()));
  const at::Tensor tensor = numbers::of_rank(comm.rank(), n, type, number);
  const std::string what = "number " + std::to_string(number);
  if (kind == 0) {
    return {comm.all_reduce_async(tensor, what), tensor,
            numbers::sum(comm.size(), n, type, number)};
  }
  if (kind == 1) {
    return {comm.reduce_async(tensor, root, what), tensor,
            comm.rank() == root ? numbers::sum(comm.size(), n, type, number) : at::Tensor()};
  }
  if (kind == 2) {
    return {comm.broadcast_async(tensor, root, what), tensor,
            numbers::of_rank(root, n, type, number)};
  }
  const at::Tensor all = at::zeros({comm.size(), n}, tensor.options());
  return {comm.all_gather_async(tensor, all, what), all,
          numbers::gathered(comm.size(), n, type, number)};
}

void expect_right(const std::vector<Pending>& pending) {
  for (std::size_t i = 0; i < pending.size(); ++i) {
    if (!pending[i].expected.defined()) continue;
    EXPECT_TRUE(at::equal(pending[i].actual, pending[i].expected)) << "operation " << i;
  }
}

TEST_P(Queue, HundredsOfMixedOperationsOnRanksWithRandomDelays) {
  on_ranks([](Communicator& comm) {
    const int rank = comm.rank();
    std::mt19937 common(1);
    std::mt19937 own(static_cast<std::uint32_t>(100 + rank));
    std::vector<Pending> pending;
    for (std::int64_t number = 0; number < 300; ++number) {
      pending.push_back(start_random(comm, common, number));
      if (pick(own, 10) == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(pick(own, 3000)));
      // Now and then a rank needs a result at once.
      if (pick(own, 20) == 0) pending.back().work.wait();
    }
    for (const Pending& one : pending) one.work.wait();
    expect_right(pending);
  });
}

TEST_P(Queue, OperationsAreAwaitedInAnyOrderAndAgain) {
  on_ranks([](Communicator& comm) {
    const int rank = comm.rank();
    std::mt19937 common(2);
    std::vector<Pending> pending;
    for (std::int64_t number = 0; number < 50; ++number) {
      pending.push_back(start_random(comm, common, number));
    }
    // Every rank waits in a different order.
    std::vector<std::size_t> order(pending.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::mt19937 own(static_cast<std::uint32_t>(rank));
    std::shuffle(order.begin(), order.end(), own);
    for (const std::size_t index : order) pending[index].work.wait();
    for (const Pending& one : pending) {
      EXPECT_TRUE(support::on_cuda() || one.work.done());
      one.work.wait();
    }
    expect_right(pending);
  });
}

// Operations end even if no rank waits for them.
TEST_P(Queue, OperationsEndWithoutAWait) {
  on_ranks([](Communicator& comm) {
    std::mt19937 common(3);
    std::vector<Pending> pending;
    for (std::int64_t number = 0; number < 20; ++number) {
      pending.push_back(start_random(comm, common, number));
    }
    for (const Pending& one : pending) {
      const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (!one.work.done() && std::chrono::steady_clock::now() < give_up) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ASSERT_TRUE(one.work.done());
    }
    const auto seen = std::chrono::steady_clock::now();
    for (const Pending& one : pending) {
      one.work.wait();
      const auto span = one.work.span();
      if (!span) continue;  // a back end that measures none
      EXPECT_LE(span->begin, span->end);
      EXPECT_LE(span->end, seen);
    }
    expect_right(pending);
  });
}

TEST_P(Queue, ADroppedWorkIsStillExecuted) {
  on_ranks([](Communicator& comm) {
    const int rank = comm.rank();
    const int size = comm.size();
    const at::Tensor dropped = numbers::of_rank(rank, 1000, at::kFloat);
    { const Work work = comm.all_reduce_async(dropped, "dropped"); }
    const at::Tensor next = numbers::of_rank(rank, 10, at::kFloat);
    comm.all_reduce_async(next, "next").wait();
    EXPECT_TRUE(at::equal(next, numbers::sum(size, 10, at::kFloat)));
  });
}

}  // namespace
}  // namespace spdkfac
