// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/timing.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "spdkfac/comm/rank_values.h"
#include "support/world.h"

namespace spdkfac {
namespace {

using std::chrono::milliseconds;

TEST(Measure, GoesOverAllTasksInRoundsOfDifferentOrder) {
  const auto world = support::world();
  std::string order;
  int advanced = 0;
  const calibrate::Bench bench{*world, c10::kCPU, [&] { ++advanced; }};
  std::vector<calibrate::Task> tasks;
  for (const char name : {'a', 'b', 'c', 'd'}) {
    tasks.push_back({.name = "append", .run = [&order, name] { order += name; }});
  }
  const auto times = calibrate::measure(bench, tasks, 3);
  ASSERT_EQ(order.size(), 4 * (3 + 1));  // the first round is left out
  EXPECT_EQ(advanced, 16);
  std::set<std::string> orders;
  for (std::size_t round = 0; round < 4; ++round) {
    std::string once = order.substr(4 * round, 4);
    orders.insert(once);
    std::sort(once.begin(), once.end());
    EXPECT_EQ(once, "abcd");
  }
  EXPECT_GT(orders.size(), 1);
  for (const std::string& other : comm::texts_of_ranks(*world, c10::kCPU, order))
    EXPECT_EQ(other, order);
  ASSERT_EQ(times.size(), 4);
  for (const Seconds time : times) EXPECT_GT(time, Seconds(0));
}

// The slowest rank sleeps longest; every rank knows it.
TEST(Measure, ASampleIsThatOfTheSlowestRank) {
  const auto world = support::world();
  const auto own = milliseconds(10 * (world->rank() + 1));
  const calibrate::Task task{.name = "sleep", .run = [=] { std::this_thread::sleep_for(own); }};
  const Seconds time = calibrate::measure({*world, c10::kCPU}, std::span(&task, 1), 3).front();
  EXPECT_GE(time.value(), 0.01 * world->size());
  EXPECT_LT(time.value(), 0.01 * world->size() + 2);  // a busy machine wakes late
}

TEST(Measure, CallsOfASampleShareItsTime) {
  const auto world = support::world();
  int runs = 0;
  int finished = 0;
  const calibrate::Task task{.name = "sleep",
                             .run =
                                 [&] {
                                   ++runs;
                                   std::this_thread::sleep_for(milliseconds(100));
                                 },
                             .finish = [&] { ++finished; },
                             .calls = 4};
  const Seconds time = calibrate::measure({*world, c10::kCPU}, std::span(&task, 1), 1).front();
  // A round that is left out, and one sample.
  EXPECT_EQ(runs, 8);
  EXPECT_EQ(finished, 2);
  EXPECT_GE(time.value(), 0.1);
  EXPECT_LT(time.value(), 0.4);  // all four together take at least that
}

TEST(Measure, OwnTimeDoesNotCountSleep) {
  const auto world = support::world();
  const calibrate::Task task{.name = "sleep",
                             .run = [] { std::this_thread::sleep_for(milliseconds(50)); },
                             .own_time = true};
  EXPECT_LT(calibrate::measure({*world, c10::kCPU}, std::span(&task, 1), 1).front().value(), 0.02);
}

}  // namespace
}  // namespace spdkfac
