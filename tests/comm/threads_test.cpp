// SPDX-License-Identifier: Apache-2.0
// What only ranks that are threads have: their start and end, failures, and the order of sums.
#include "spdkfac/comm/threads.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/numbers.h"
#include "spdkfac/base/error.h"
#include "spdkfac/comm/mpi.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Comm = std::shared_ptr<Communicator>;

CommOptions with_timeout(milliseconds timeout) {
  return {.timeout = timeout, .max_piece_elements = CommOptions().max_piece_elements};
}

void sum_one(Communicator& comm, const std::string& what) {
  comm.all_reduce_async(at::ones({10}), what).wait();
}

// The message of the CommError that `body` throws; empty if it throws none.
template <class Body>
std::string comm_error(const Body& body) {
  try {
    body();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

// Texts from several threads, by rank.
class Texts {
 public:
  explicit Texts(int size) : texts_(static_cast<std::size_t>(size)) {}
  void set(int rank, std::string text) {
    const std::lock_guard lock(mutex_);
    texts_[static_cast<std::size_t>(rank)] = std::move(text);
  }
  const std::string& of(int rank) const { return texts_[static_cast<std::size_t>(rank)]; }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

class RunRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (launched_by_mpi() || support::on_cuda())
      GTEST_SKIP() << "tested without mpirun, on the CPU";
  }
  const int size_ = GetParam();
};

INSTANTIATE_TEST_SUITE_P(Sizes, RunRanks, testing::Values(1, 2, 3, 8));

TEST_P(RunRanks, StartsAThreadForEachRank) {
  std::mutex mutex;
  std::set<int> ranks;
  std::set<std::thread::id> threads{std::this_thread::get_id()};
  run_ranks(size_, [&](const Comm& comm) {
    EXPECT_EQ(comm->size(), size_);
    const std::lock_guard lock(mutex);
    ranks.insert(comm->rank());
    threads.insert(std::this_thread::get_id());
  });
  ASSERT_EQ(static_cast<int>(ranks.size()), size_);
  EXPECT_EQ(*ranks.begin(), 0);
  EXPECT_EQ(*ranks.rbegin(), size_ - 1);
  EXPECT_EQ(static_cast<int>(threads.size()), size_ + 1);
}

// Ranks that never wait for each other's calls, and wait for the results in reverse order.
TEST_P(RunRanks, ManyOperationsAreUnderWayAtATime) {
  constexpr int kOperations = 500;
  run_ranks(size_, [&](const Comm& comm) {
    std::vector<at::Tensor> sums;
    std::vector<Work> works;
    for (int i = 0; i < kOperations; ++i) {
      sums.push_back(numbers::of_rank(comm->rank(), 100, at::kFloat, i));
      works.push_back(comm->all_reduce_async(sums.back(), fmt::format("sum {}", i)));
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    for (int i = 0; i < kOperations; ++i) {
      EXPECT_TRUE(
          at::equal(sums[static_cast<std::size_t>(i)], numbers::sum(size_, 100, at::kFloat, i)));
    }
  });
}

// Floats round, so the order of the additions shows: it is that of the ranks, whoever comes last.
TEST_P(RunRanks, SumsAreAddedInTheOrderOfTheRanks) {
  const auto number = [](int rank) { return rank % 3 == 0 ? 1e8F : rank % 3 == 1 ? 1.5F : -1e8F; };
  float expected = number(0);
  for (int rank = 1; rank < size_; ++rank) expected += number(rank);
  for (int last = 0; last < size_; ++last) {
    run_ranks(size_, [&](const Comm& comm) {
      const at::Tensor sum = at::full({3000}, number(comm->rank()));
      const at::Tensor at_root = sum.clone();
      if (comm->rank() == last) std::this_thread::sleep_for(milliseconds(5));
      comm->all_reduce_async(sum, "sum").wait();
      comm->reduce_async(at_root, last, "sum at the root").wait();
      EXPECT_TRUE(at::equal(sum, at::full({3000}, expected)));
      EXPECT_TRUE(comm->rank() != last || at::equal(at_root, sum));
    });
  }
}

TEST_P(RunRanks, OperationsThatNoRankWaitsForAreCompleted) {
  std::vector<at::Tensor> sums;
  for (int rank = 0; rank < size_; ++rank) {
    sums.push_back(numbers::of_rank(rank, 100'000, at::kDouble));
  }
  run_ranks(size_, [&](const Comm& comm) {
    const Work dropped =
        comm->all_reduce_async(sums[static_cast<std::size_t>(comm->rank())], "dropped");
  });
  for (const at::Tensor& sum : sums) {
    EXPECT_TRUE(at::equal(sum, numbers::sum(size_, 100'000, at::kDouble)));
  }
}

// d/dx Σ (r + 1)·x² = 2·(r + 1)·x on rank r. The gradient is sent from a hook, in the backward
// pass.
TEST_P(RunRanks, EachRankRunsItsBackwardPass) {
  const at::NoGradGuard no_grad;  // of the calling thread only
  run_ranks(size_, [&](const Comm& comm) {
    EXPECT_TRUE(at::GradMode::is_enabled());
    for (int step = 0; step < 10; ++step) {
      at::Tensor x = at::arange(4, at::kFloat).requires_grad_();
      at::Tensor sum;
      Work work;
      x.register_hook([&](const at::Tensor& gradient) {
        sum = gradient.clone();
        work = comm->all_reduce_async(sum, "gradient");
      });
      ((comm->rank() + 1) * x * x).sum().backward();
      work.wait();
      EXPECT_TRUE(at::equal(x.grad(), 2 * (comm->rank() + 1) * at::arange(4, at::kFloat)));
      EXPECT_TRUE(at::equal(sum, size_ * (size_ + 1) * at::arange(4, at::kFloat)));
    }
  });
}

TEST_P(RunRanks, TheFirstErrorIsRethrownAndEndsTheOtherRanks) {
  const int faulty = size_ - 1;
  Texts texts(size_);
  const std::string message = support::config_error([&] {
    run_ranks(size_, [&](const Comm& comm) {
      sum_one(*comm, "before");
      if (comm->rank() == faulty) throw ConfigError("data: there is none; pass some");
      texts.set(comm->rank(), comm_error([&] { sum_one(*comm, "after"); }));
      // Every later call fails as well.
      EXPECT_EQ(comm_error([&] { comm->barrier("end"); }), texts.of(comm->rank()));
    });
  });
  EXPECT_EQ(message, "data: there is none; pass some");
  for (int rank = 0; rank < faulty; ++rank) {
    EXPECT_EQ(texts.of(rank),
              fmt::format("threads: rank {} of {} failed (data: there is none; pass some); fix the "
                          "error of that rank",
                          faulty, size_));
  }
}

class Threads : public testing::Test {
 protected:
  void SetUp() override {
    if (launched_by_mpi() || support::on_cuda())
      GTEST_SKIP() << "tested without mpirun, on the CPU";
  }
};

TEST_F(Threads, AnyKindOfExceptionIsRethrown) {
  EXPECT_THROW(run_ranks(2,
                         [](const Comm& comm) {
                           if (comm->rank() == 1) throw 7;
                           sum_one(*comm, "sum");
                         }),
               int);
}

// Rank 1 does not begin before rank 0 has started all operations, and rank 0 does not touch the
// communicator again before they are done.
TEST_F(Threads, StartDoesNotWaitAndOperationsEndByThemselves) {
  std::promise<void> started;
  run_ranks(2, [&](const Comm& comm) {
    if (comm->rank() == 1) started.get_future().wait();
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) works.push_back(comm->all_reduce_async(at::ones({1000}), "sum"));
    if (comm->rank() == 0) {
      EXPECT_FALSE(works.front().done());
      started.set_value();
    }
    for (const Work& work : works) {
      while (!work.done()) std::this_thread::yield();
    }
  });
}

TEST_F(Threads, SpansFollowEachOther) {
  run_ranks(3, [](const Comm& comm) {
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) works.push_back(comm->all_reduce_async(at::ones({1000}), "sum"));
    for (const Work& work : works) work.wait();
    for (std::size_t i = 1; i < works.size(); ++i) {
      EXPECT_LE(works[i - 1].span()->end, works[i].span()->begin);
    }
  });
}

// Both ranks get the same message, which says what each has called. Either may come first.
void expect_mismatch(const std::function<Work(Communicator&)>& call_of_rank_1,
                     const std::string& text) {
  const std::string mine = "all_reduce 'sum' of 10 float elements";
  Texts texts(2);
  run_ranks(2, [&](const Comm& comm) {
    texts.set(comm->rank(), comm_error([&] {
                if (comm->rank() == 1) {
                  call_of_rank_1(*comm).wait();
                } else {
                  comm->all_reduce_async(at::ones({10}), "sum").wait();
                }
              }));
  });
  EXPECT_EQ(texts.of(0), texts.of(1));
  const std::string advice = "; give all ranks the same options, data and code";
  EXPECT_THAT(texts.of(0),
              testing::AnyOf(fmt::format("threads: rank 0 of 2 called {}, but rank 1 called {}{}",
                                         mine, text, advice),
                             fmt::format("threads: rank 1 of 2 called {}, but rank 0 called {}{}",
                                         text, mine, advice)));
}

TEST_F(Threads, DifferentCallsFailOnAllRanks) {
  const at::Tensor ten = at::ones({10});
  expect_mismatch([&](Communicator& comm) { return comm.all_reduce_async(at::ones({9}), "sum"); },
                  "all_reduce 'sum' of 9 float elements");
  expect_mismatch([&](Communicator& comm) { return comm.all_reduce_async(ten, "other"); },
                  "all_reduce 'other' of 10 float elements");
  expect_mismatch(
      [&](Communicator& comm) { return comm.all_reduce_async(ten.to(at::kDouble), "sum"); },
      "all_reduce 'sum' of 10 double elements");
  expect_mismatch([&](Communicator& comm) { return comm.reduce_async(ten, 1, "sum"); },
                  "reduce 'sum' of 10 float elements with root 1");
  expect_mismatch(
      [&](Communicator& comm) {
        comm.barrier("end");
        return Work();
      },
      "barrier 'end'");
}

TEST_F(Threads, DifferentRootsFail) {
  Texts texts(2);
  run_ranks(2, [&](const Comm& comm) {
    texts.set(comm->rank(), comm_error([&] {
                comm->broadcast_async(at::ones({10}), comm->rank(), "copy").wait();
              }));
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(texts.of(rank), HasSubstr("elements with root 0"));
    EXPECT_THAT(texts.of(rank), HasSubstr("elements with root 1"));
  }
}

TEST_F(Threads, ASilentRankIsATimeoutOnTheOthersAndThenOnItself) {
  std::promise<void> failed;
  Texts texts(2);
  run_ranks(
      2,
      [&](const Comm& comm) {
        if (comm->rank() == 1) failed.get_future().wait();
        texts.set(comm->rank(), comm_error([&] { sum_one(*comm, "sum"); }));
        if (comm->rank() == 0) failed.set_value();
      },
      with_timeout(milliseconds(50)));
  EXPECT_THAT(texts.of(0),
              HasSubstr("threads: all_reduce 'sum' of 10 float elements on rank 0 of 2 "
                        "has not ended after 0."));
  EXPECT_THAT(texts.of(0), HasSubstr("s; rank 1 did not join it: let all ranks call the same "
                                     "collectives, or set a timeout longer than 0.05 s"));
  EXPECT_EQ(texts.of(1), texts.of(0));
}

// Rank 0 starts everything at once. Rank 1 takes 5·80 ms for it, more than the timeout, but no
// operation is that long after the one before it.
TEST_F(Threads, TheTimeoutCountsFromTheEndOfThePreviousOperation) {
  run_ranks(
      2,
      [](const Comm& comm) {
        std::vector<Work> works;
        for (int i = 0; i < 5; ++i) {
          if (comm->rank() == 1) std::this_thread::sleep_for(milliseconds(80));
          works.push_back(comm->all_reduce_async(at::ones({10}), "sum"));
        }
        for (const Work& work : works) work.wait();
      },
      with_timeout(milliseconds(350)));
}

TEST_F(Threads, ARankThatReturnsEarlyIsAnErrorOnTheOthers) {
  // Rank 2 joins before or after rank 1 has returned.
  for (const int delay : {0, 5}) {
    const std::string message = comm_error([&] {
      run_ranks(3, [&](const Comm& comm) {
        sum_one(*comm, "first");
        if (comm->rank() == 1) return;
        std::this_thread::sleep_for(milliseconds(delay));
        sum_one(*comm, "second");
      });
    });
    EXPECT_THAT(message, HasSubstr("threads: all_reduce 'second' of 10 float elements on rank "));
    EXPECT_THAT(message, HasSubstr("cannot end; rank 1 returned without joining it: let all ranks "
                                   "call the same collectives"));
  }
}

TEST_F(Threads, ARankMayReturnBeforeTheOthersJoinItsOperations) {
  const at::Tensor first = at::ones({10});
  run_ranks(2, [&](const Comm& comm) {
    if (comm->rank() == 0) {
      const Work dropped = comm->all_reduce_async(first, "sum");
      return;
    }
    std::this_thread::sleep_for(milliseconds(5));
    sum_one(*comm, "sum");
  });
  EXPECT_TRUE(at::equal(first, at::full({10}, 2.0F)));
}

TEST_F(Threads, CommunicatorsEndWithTheirRanks) {
  Comm kept;
  run_ranks(2, [&](const Comm& comm) {
    if (comm->rank() == 0) kept = comm;
  });
  EXPECT_THAT(comm_error([&] { sum_one(*kept, "late"); }), HasSubstr("cannot end"));
}

TEST_F(Threads, OnlyCpuTensorsAreTaken) {
  support::expect_config_error(
      [] {
        run_ranks(2, [](const Comm& comm) {
          comm->all_reduce_async(at::empty({3}, at::device(at::kMeta)), "sum").wait();
        });
      },
      "has a tensor on meta; ranks that are threads take CPU tensors only");
}

TEST_F(Threads, ThereIsAtLeastOneRank) {
  support::expect_config_error([] { run_ranks(0, [](const Comm&) {}); }, "(size=0)");
}

}  // namespace
}  // namespace spdkfac
