// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/timing.h"

#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "support/world.h"

namespace spdkfac {
namespace {

using std::chrono::milliseconds;

TEST(Median, OfOddAndEvenCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(Measure, GoesOverAllTasksInRoundsAndSkipsTheFirst) {
  const auto world = support::world();
  std::string order;
  int advanced = 0;
  const Bench bench{*world, c10::kCPU, [&] { ++advanced; }};
  const std::vector<Task> tasks{{.name = "a", .run = [&] { order += 'a'; }},
                                {.name = "b", .run = [&] { order += 'b'; }}};
  const auto times = measure(bench, tasks, 3);
  EXPECT_EQ(order, "abababab");
  EXPECT_EQ(advanced, 8);
  ASSERT_EQ(times.size(), 2);
  for (const Seconds time : times) EXPECT_GT(time, Seconds(0));
}

// The slowest rank sleeps longest; every rank knows it.
TEST(Measure, ASampleIsThatOfTheSlowestRank) {
  const auto world = support::world();
  const auto own = milliseconds(10 * (world->rank() + 1));
  const Task task{.name = "sleep", .run = [=] { std::this_thread::sleep_for(own); }};
  const Seconds time = measure({*world, c10::kCPU}, std::span(&task, 1), 3).front();
  EXPECT_GE(time.value(), 0.01 * world->size());
  EXPECT_LT(time.value(), 0.01 * world->size() + 0.1);  // a busy machine wakes late
}

TEST(Measure, CallsOfASampleShareItsTime) {
  const auto world = support::world();
  int runs = 0;
  int finished = 0;
  const Task task{.name = "sleep",
                  .run =
                      [&] {
                        ++runs;
                        std::this_thread::sleep_for(milliseconds(25));
                      },
                  .finish = [&] { ++finished; },
                  .calls = 4};
  const Seconds time = measure_once({*world, c10::kCPU}, std::span(&task, 1)).front();
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(finished, 1);
  EXPECT_GE(time.value(), 0.025);
  EXPECT_LT(time.value(), 0.1);  // all four together take at least that
}

TEST(Measure, OwnTimeDoesNotCountSleep) {
  const auto world = support::world();
  const Task task{.name = "sleep",
                  .run = [] { std::this_thread::sleep_for(milliseconds(50)); },
                  .own_time = true};
  EXPECT_LT(measure_once({*world, c10::kCPU}, std::span(&task, 1)).front().value(), 0.02);
}

}  // namespace
}  // namespace spdkfac
