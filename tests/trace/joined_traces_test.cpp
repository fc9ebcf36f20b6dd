// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/trace/joined_traces.h"

#include <gtest/gtest.h>

#include "spdkfac/base/check.h"
#include "spdkfac/trace/breakdown.h"

namespace spdkfac {
namespace {

void add(Trace& trace, const char* name, Lane lane, Category category, double start, double end) {
  trace.add({.rank = 0,
             .name = trace.intern(name),
             .lane = lane,
             .category = category,
             .start = Seconds(start),
             .duration = Seconds(end - start)});
}

// Rank 0 computes for 1 s and starts the message at once; rank 1, which began 0.5 s later, inverts
// until 3 s on its clock before it joins. The message then takes 0.5 s.
std::vector<Trace> early_and_late() {
  std::vector<Trace> ranks(2);
  add(ranks[0], "forward", Lane::kCompute, Category::kForwardBackward, 0, 1);
  add(ranks[0], "message", Lane::kChannel, Category::kInverseComm, 1, 4);
  add(ranks[1], "inverse", Lane::kCompute, Category::kInverseComp, 0, 3);
  add(ranks[1], "message", Lane::kChannel, Category::kInverseComm, 3, 3.5);
  return ranks;
}

TEST(JoinedTraces, AMessageBeginsWhenTheLastRankHasStartedIt) {
  const Trace all = trace::joined_traces(early_and_late(), {Seconds(0), Seconds(0.5)});
  ASSERT_EQ(all.world(), 2);
  ASSERT_EQ(all.events().size(), 4U);
  const TraceEvent& first = all.events()[1];
  EXPECT_EQ(first.rank, 0);
  EXPECT_DOUBLE_EQ(first.start.value(), 3.5);
  EXPECT_DOUBLE_EQ(first.end().value(), 4);
  const TraceEvent& second = all.events()[3];
  EXPECT_EQ(second.rank, 1);
  EXPECT_DOUBLE_EQ(second.start.value(), 3.5);
  EXPECT_DOUBLE_EQ(second.end().value(), 4);
  EXPECT_EQ(all.names()[second.name], "message");
}

// Rank 0 computes for 1 s. What it waits for until 3.5 is the inversion of rank 1, not the network:
// 0.5 s.
TEST(JoinedTraces, WaitingCountsAsWhatTheLateRankComputes) {
  const CategoryTimes times =
      breakdown(trace::joined_traces(early_and_late(), {Seconds(0), Seconds(0.5)}), 0);
  EXPECT_DOUBLE_EQ(times[Category::kForwardBackward].value(), 1);
  EXPECT_DOUBLE_EQ(times[Category::kInverseComp].value(), 2.5);
  EXPECT_DOUBLE_EQ(times[Category::kInverseComm].value(), 0.5);
}

// The root of a broadcast is done when it has sent; the message still travels, and the next one
// follows behind it.
TEST(JoinedTraces, AMessageEndsWhenTheLastRankHasIt) {
  std::vector<Trace> ranks(2);
  add(ranks[0], "first", Lane::kChannel, Category::kFactorComm, 0, 0.25);
  add(ranks[0], "second", Lane::kChannel, Category::kFactorComm, 0.25, 0.5);
  add(ranks[1], "first", Lane::kChannel, Category::kFactorComm, 0.125, 1);
  add(ranks[1], "second", Lane::kChannel, Category::kFactorComm, 1, 1.5);
  const Trace all = trace::joined_traces(ranks, {Seconds(0), Seconds(0)});
  for (const std::size_t rank : {0U, 1U}) {
    const TraceEvent& first = all.events()[2 * rank];
    const TraceEvent& second = all.events()[2 * rank + 1];
    EXPECT_EQ(first.start, Seconds(0.125));
    EXPECT_EQ(first.end(), Seconds(1));
    EXPECT_EQ(second.start, Seconds(1));
    EXPECT_EQ(second.end(), Seconds(1.5));
  }
}

// Clocks are not exact: a message that the other rank began when it was over for one, by its clock.
TEST(JoinedTraces, AMessageNeverTakesLessThanNoTime) {
  std::vector<Trace> ranks(2);
  add(ranks[0], "message", Lane::kChannel, Category::kFactorComm, 0, 1);
  add(ranks[1], "message", Lane::kChannel, Category::kFactorComm, 1.25, 1.5);
  const Trace all = trace::joined_traces(ranks, {Seconds(0), Seconds(0)});
  EXPECT_EQ(all.events()[0].start, Seconds(1.25));
  EXPECT_EQ(all.events()[0].end(), Seconds(1.5));
}

void add_message(Trace& trace, double start, double end, std::int64_t elements) {
  trace.add({.rank = 0,
             .name = trace.intern("message"),
             .lane = Lane::kChannel,
             .category = Category::kFactorComm,
             .start = Seconds(start),
             .duration = Seconds(end - start),
             .elements = elements});
}

// A start-up counts as 4096 elements. The first two end at 3 s and began to travel at 0: 12288 of
// 16384 elements, with start-ups, are the first. The third is as fast as they are, on its own.
TEST(JoinedTraces, MessagesThatEndTogetherShareTheTime) {
  Trace trace;
  add_message(trace, 0, 3, 8192);
  add_message(trace, 3, 3, 0);
  add_message(trace, 3, 6, 12288);
  const Trace all = trace::joined_traces({trace}, {Seconds(0)});
  ASSERT_EQ(all.events().size(), 3U);
  EXPECT_DOUBLE_EQ(all.events()[0].end().value(), 3 * 12288.0 / 16384);
  EXPECT_DOUBLE_EQ(all.events()[1].start.value(), 3 * 12288.0 / 16384);
  EXPECT_DOUBLE_EQ(all.events()[1].end().value(), 3);
  EXPECT_DOUBLE_EQ(all.events()[2].start.value(), 3);
  EXPECT_DOUBLE_EQ(all.events()[2].end().value(), 6);
}

// One that began when the one before was over did not travel beside it, however fast it is.
TEST(JoinedTraces, AMessageBehindAPauseHasItsOwnTime) {
  Trace trace;
  add_message(trace, 0, 3, 8192);
  add_message(trace, 3.5, 3.6, 8192);
  const Trace all = trace::joined_traces({trace}, {Seconds(0)});
  EXPECT_DOUBLE_EQ(all.events()[0].end().value(), 3);
  EXPECT_DOUBLE_EQ(all.events()[1].start.value(), 3.5);
  EXPECT_DOUBLE_EQ(all.events()[1].end().value(), 3.6);
}

// The third ends so soon that it has travelled beside both, which by themselves look right.
TEST(JoinedTraces, SharingGoesBackAsFarAsItMust) {
  Trace trace;
  add_message(trace, 0, 10, 12288);  // with start-ups 4, 1 and 11 of 16 parts of 14 s
  add_message(trace, 10, 14, 0);
  add_message(trace, 14, 14, 40960);
  const Trace all = trace::joined_traces({trace}, {Seconds(0)});
  EXPECT_DOUBLE_EQ(all.events()[0].end().value(), 3.5);
  EXPECT_DOUBLE_EQ(all.events()[1].end().value(), 4.375);
  EXPECT_DOUBLE_EQ(all.events()[2].end().value(), 14);
}

// Where start-ups take most of the time, a larger message is faster without travelling beside.
TEST(JoinedTraces, MessagesOfEqualTimesKeepThem) {
  Trace trace;
  add_message(trace, 0, 2, 1);
  add_message(trace, 2, 4, 1'000'000);
  const Trace all = trace::joined_traces({trace}, {Seconds(0)});
  EXPECT_DOUBLE_EQ(all.events()[0].end().value(), 2);
  EXPECT_DOUBLE_EQ(all.events()[1].end().value(), 4);
}

TEST(JoinedTraces, RanksHaveTheSameMessages) {
  std::vector<Trace> ranks(2);
  add(ranks[0], "message", Lane::kChannel, Category::kFactorComm, 0, 1);
  EXPECT_THROW(trace::joined_traces(ranks, {Seconds(0), Seconds(0)}), InternalError);
}

}  // namespace
}  // namespace spdkfac
