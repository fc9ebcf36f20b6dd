// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/emulated_link.h"

#include <chrono>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace spdkfac {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// One millisecond for each element, so that operations are long beside a late wake-up.
std::unique_ptr<EmulatedLink> slow_link() {
  return std::make_unique<EmulatedLink>(make_local_communicator(), [](Operation, const Load& load) {
    return Seconds(1e-3 * static_cast<double>(load.elements));
  });
}

OperationSpan span_of(const Work& work) { return work.span().value(); }

// Started together: 30 ms, 20 ms and 0 ms follow each other without a gap.
TEST(EmulatedLink, OneOperationAtATimeInTheirOrder) {
  const auto link = slow_link();
  const auto before = Clock::now();
  const Work first = link->all_reduce_async(at::zeros({30}), "first");
  const Work second = link->broadcast_async(at::zeros({20}), 0, "second");
  const Work third = link->reduce_async(at::zeros({0}), 0, "third");
  EXPECT_GE(span_of(first).begin, before);
  EXPECT_EQ(span_of(first).end - span_of(first).begin, milliseconds(30));
  EXPECT_EQ(span_of(second).begin, span_of(first).end);
  EXPECT_EQ(span_of(second).end - span_of(second).begin, milliseconds(20));
  EXPECT_EQ(span_of(third).begin, span_of(second).end);
  EXPECT_EQ(span_of(third).end, span_of(third).begin);
}

TEST(EmulatedLink, AFreeChannelStartsAtOnce) {
  const auto link = slow_link();
  link->all_reduce_async(at::zeros({5}), "first").wait();
  std::this_thread::sleep_for(milliseconds(10));
  const auto before = Clock::now();
  const Work second = link->all_reduce_async(at::zeros({5}), "second");
  EXPECT_GE(span_of(second).begin, before);
  EXPECT_LE(span_of(second).begin, Clock::now());
}

TEST(EmulatedLink, WaitEndsWithTheSpanAndNeverEarlier) {
  const auto link = slow_link();
  std::vector<Work> works;
  for (const int elements : {20, 1, 15}) {
    works.push_back(link->all_reduce_async(at::zeros({elements}), "some"));
  }
  for (const Work& work : works) {
    work.wait();
    EXPECT_GE(Clock::now(), span_of(work).end);
    EXPECT_TRUE(work.done());
  }
}

TEST(EmulatedLink, DoneFollowsTheClock) {
  const auto link = slow_link();
  const Work work = link->all_reduce_async(at::zeros({50}), "some");
  while (!work.done()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_GE(Clock::now(), span_of(work).end);
  const Work next = link->all_reduce_async(at::zeros({3'600'000}), "an hour");
  EXPECT_FALSE(next.done());
}

TEST(EmulatedLink, BarriersTakeTheirTurnOnTheChannel) {
  const auto link = slow_link();
  const Work work = link->all_reduce_async(at::zeros({30}), "some");
  link->barrier("end");
  EXPECT_GE(Clock::now(), span_of(work).end);
}

}  // namespace
}  // namespace spdkfac
