// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/channel.h"

#include <utility>

#include <gtest/gtest.h>

namespace spdkfac {
namespace {

// Carries a message from `ready` on and tells when it starts and ends.
std::pair<double, double> carry(sim::Channel& channel, double ready, double duration) {
  const sim::BusyTime interval = channel.carry(Seconds(ready), Seconds(duration));
  return {interval.start.value(), interval.end.value()};
}

using Times = std::pair<double, double>;

TEST(Channel, CarriesOneMessageAtATimeInTheOrderGiven) {
  sim::Channel channel;
  EXPECT_EQ(channel.free_at(), Seconds(0));
  EXPECT_EQ(carry(channel, 2, 3), Times(2, 5));
  EXPECT_EQ(carry(channel, 1, 2), Times(5, 7));  // ready before the first, but behind it
  EXPECT_EQ(carry(channel, 9, 1), Times(9, 10));
  EXPECT_EQ(channel.free_at(), Seconds(10));
}

TEST(Channel, KnowsHowLongItWasBusySinceATime) {
  sim::Channel channel;
  carry(channel, 1, 2);  // busy 1-3
  carry(channel, 5, 2);  // busy 5-7
  EXPECT_EQ(channel.busy_since(Seconds(0)), Seconds(4));
  EXPECT_EQ(channel.busy_since(Seconds(2)), Seconds(3));
  EXPECT_EQ(channel.busy_since(Seconds(4)), Seconds(2));
  EXPECT_EQ(channel.busy_since(Seconds(6)), Seconds(1));
  EXPECT_EQ(channel.busy_since(Seconds(7)), Seconds(0));
}

TEST(RankClock, TellsHowLongItWillComputeUnderAMessage) {
  sim::Channel channel;
  carry(channel, 1, 2);  // busy 1-3
  carry(channel, 5, 2);  // busy 5-7
  sim::RankClock clock(2, 0.5);
  clock.expect(Seconds(4));  // 8 s of work
  // 0-1 does 1, 1-3 does 1, 3-5 does 2, 5-7 does 1, 7-9 does 2; 1 is left, at half speed.
  EXPECT_EQ(clock.computes_from(Seconds(9), channel), Seconds(2));
  EXPECT_EQ(clock.computes_from(Seconds(12), channel), Seconds(0));
  clock.compute(Seconds(1), channel);  // 2 s of work, until 3; 6 are left
  EXPECT_EQ(clock.computes_from(Seconds(9), channel), Seconds(2));
  clock.wait_until(Seconds(3));  // what was expected is over
  EXPECT_EQ(clock.computes_from(Seconds(9), channel), Seconds(0));
}

TEST(RankClock, RunsAtFullSpeedOnAQuietChannel) {
  const sim::Channel channel;
  sim::RankClock clock(1, 0.5);
  clock.compute(Seconds(3), channel);
  EXPECT_EQ(clock.now(), Seconds(3));
}

TEST(RankClock, SlownessMultipliesWork) {
  const sim::Channel channel;
  sim::RankClock clock(1.5, 1);
  clock.compute(Seconds(2), channel);
  EXPECT_EQ(clock.now(), Seconds(3));
  sim::RankClock faster(0.5, 1);
  faster.compute(Seconds(2), channel);
  EXPECT_EQ(faster.now(), Seconds(1));
}

TEST(RankClock, WaitingNeverGoesBack) {
  sim::RankClock clock(1, 1);
  clock.wait_until(Seconds(4));
  clock.wait_until(Seconds(3));
  EXPECT_EQ(clock.now(), Seconds(4));
}

TEST(RankClock, WorksPiecewiseThroughBusyAndQuietTimes) {
  sim::Channel channel;
  carry(channel, 1, 2);  // busy 1-3
  carry(channel, 4, 2);  // busy 4-6
  sim::RankClock clock(1, 0.5);
  // 0-1 does 1, 1-3 does 1, 3-4 does 1, 4-6 does 1, 6-7 does 1: 5 s of work in 7 s.
  clock.compute(Seconds(5), channel);
  EXPECT_EQ(clock.now(), Seconds(7));
}

TEST(RankClock, ContinuesWhereTheLastTaskEnded) {
  sim::Channel channel;
  carry(channel, 1, 4);  // busy 1-5
  sim::RankClock clock(1, 0.25);
  clock.compute(Seconds(1.5), channel);  // 0-1 does 1, 1-3 does 0.5
  EXPECT_EQ(clock.now(), Seconds(3));
  clock.compute(Seconds(0.25), channel);
  EXPECT_EQ(clock.now(), Seconds(4));
  clock.compute(Seconds(1.25), channel);  // 4-5 does 0.25, then 1 at full speed
  EXPECT_EQ(clock.now(), Seconds(6));
}

TEST(RankClock, WaitingSkipsWhatTheChannelDidMeanwhile) {
  sim::Channel channel;
  carry(channel, 0, 2);
  carry(channel, 3, 2);  // busy 3-5
  sim::RankClock clock(1, 0.5);
  clock.wait_until(Seconds(4));
  clock.compute(Seconds(1), channel);  // 4-5 does 0.5, 5-5.5 the rest
  EXPECT_EQ(clock.now(), Seconds(5.5));
}

TEST(RankClock, SeesMessagesCarriedAfterAnEarlierTask) {
  sim::Channel channel;
  sim::RankClock clock(1, 0.5);
  clock.compute(Seconds(1), channel);
  carry(channel, 1, 2);                // busy 1-3
  clock.compute(Seconds(2), channel);  // 1 by 3, then 1
  EXPECT_EQ(clock.now(), Seconds(4));
}

}  // namespace
}  // namespace spdkfac
