// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/trace/breakdown.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace spdkfac {
namespace {

constexpr Category kFfBp = Category::kForwardBackward;
constexpr Category kGrad = Category::kGradientComm;
constexpr Category kFactor = Category::kFactorComp;
constexpr Category kFactorComm = Category::kFactorComm;
constexpr Category kInverse = Category::kInverseComp;
constexpr Category kInverseComm = Category::kInverseComm;

class Builder {
 public:
  explicit Builder(int world) : trace_(world) { name_ = trace_.intern("task"); }

  Builder& compute(int rank, Category category, double start, double end) {
    return add(rank, Lane::kCompute, category, start, end);
  }
  Builder& channel(int rank, Category category, double start, double end) {
    return add(rank, Lane::kChannel, category, start, end);
  }
  const Trace& trace() const { return trace_; }

 private:
  Builder& add(int rank, Lane lane, Category category, double start, double end) {
    trace_.add({rank, name_, lane, category, Seconds(start), Seconds(end - start)});
    return *this;
  }

  Trace trace_;
  std::uint32_t name_;
};

TEST(Breakdown, CountsOnlyTheCommunicationThatNoComputationHides) {
  // compute 0..4 and 6..7; channel 3..6: one second hidden (3..4), two exposed (4..6).
  Builder builder(1);
  builder.compute(0, kFfBp, 0, 4).channel(0, kGrad, 3, 6).compute(0, kFactor, 6, 7);
  const CategoryTimes times = breakdown(builder.trace(), 0);
  EXPECT_EQ(times[kFfBp], Seconds(4));
  EXPECT_EQ(times[kGrad], Seconds(2));
  EXPECT_EQ(times[kFactor], Seconds(1));
  EXPECT_EQ(times.total(), builder.trace().iteration());
  EXPECT_EQ(exposed_communication(times), Seconds(2));
}

TEST(MeanBreakdown, AddsUpAndCountsEveryRankAlike) {
  // Rank 0 computes 0..4 and then has 2 s of the message to itself; rank 1 computes 0..2 and has 4.
  Builder builder(2);
  builder.compute(0, kFfBp, 0, 4).channel(0, kGrad, 2, 6);
  builder.compute(1, kFfBp, 0, 2).channel(1, kGrad, 2, 6);
  const CategoryTimes times = mean_breakdown(builder.trace());
  EXPECT_EQ(times[kFfBp], Seconds(3));
  EXPECT_EQ(times[kGrad], Seconds(3));
  EXPECT_EQ(times.total(), builder.trace().iteration());
}

TEST(Breakdown, SplitsAMessageThatIsHiddenTwice) {
  // channel 0..10, compute 2..3 and 5..8: exposed 0..2, 3..5, 8..10 = 6.
  Builder builder(1);
  builder.channel(0, kFactorComm, 0, 10).compute(0, kFfBp, 2, 3).compute(0, kFactor, 5, 8);
  const CategoryTimes times = breakdown(builder.trace(), 0);
  EXPECT_EQ(times[kFactorComm], Seconds(6));
  EXPECT_EQ(times[kFfBp], Seconds(1));
  EXPECT_EQ(times[kFactor], Seconds(3));
}

TEST(Breakdown, WaitingForARankCountsAsWhatItHasDoneMoreSinceBothLastMet) {
  // Both meet in a message 1..2. Rank 0 inverts until 3 and waits until 6 for rank 1, which
  // computes factors until 4 and inverts until 6; then both broadcast for a second.
  Builder builder(2);
  builder.compute(0, kFfBp, 0, 1).compute(0, kInverse, 2, 3);
  builder.compute(1, kFfBp, 0, 1).compute(1, kFactor, 2, 4).compute(1, kInverse, 4, 6);
  for (const int rank : {0, 1}) {
    builder.channel(rank, kGrad, 1, 2).channel(rank, kInverseComm, 6, 7);
  }
  const CategoryTimes times = breakdown(builder.trace(), 0);
  EXPECT_EQ(times[kFfBp], Seconds(1));
  EXPECT_EQ(times[kGrad], Seconds(1));
  // Rank 1 has 2 s of factors and 1 s of inverses more, which are the 3 s of the wait.
  EXPECT_EQ(times[kFactor], Seconds(2));
  EXPECT_EQ(times[kInverse], Seconds(2));
  EXPECT_EQ(times[kInverseComm], Seconds(1));
  EXPECT_EQ(critical_rank(builder.trace()), 1);
}

TEST(Breakdown, AShortWaitChangesLittleHoweverDifferentTheRanksAre) {
  // Rank 0 inverts 0..7; rank 1 inverts 0..1, preconditions 1..5 and computes factors 5..8. The
  // wait of a second is shared by what rank 1 has more of, 4 to 3.
  Builder builder(2);
  builder.compute(0, kInverse, 0, 7).channel(0, kInverseComm, 8, 9);
  builder.compute(1, kInverse, 0, 1).compute(1, Category::kPrecondition, 1, 5);
  builder.compute(1, kFactor, 5, 8).channel(1, kInverseComm, 8, 9);
  const CategoryTimes times = breakdown(builder.trace(), 0);
  EXPECT_EQ(times[kInverse], Seconds(7));
  EXPECT_DOUBLE_EQ(times[Category::kPrecondition].value(), 4.0 / 7);
  EXPECT_DOUBLE_EQ(times[kFactor].value(), 3.0 / 7);
  EXPECT_EQ(times[kInverseComm], Seconds(1));
}

TEST(Breakdown, AWaitThatIsCountedIsNotCountedAgain) {
  // Since the message that began at 0 rank 0 has waked up for 1 s (to the message), computed 1 s
  // and waits 2 s for rank 1, which had the message 1 s longer and computes 2 s.
  Builder builder(2);
  builder.channel(0, kGrad, 0, 1).compute(0, kFactor, 2, 3).channel(0, kFactorComm, 5, 6);
  builder.channel(1, kGrad, 0, 3).compute(1, kFactor, 3, 5).channel(1, kFactorComm, 5, 6);
  const CategoryTimes times = breakdown(builder.trace(), 0);
  EXPECT_EQ(times[kGrad], Seconds(3));    // 1 of its own, 1 to wake up, 1 of the wait
  EXPECT_EQ(times[kFactor], Seconds(2));  // 1 of its own, 1 of the wait
  EXPECT_EQ(times[kFactorComm], Seconds(1));
}

TEST(Breakdown, ALateMessageIsCommunicationForThoseWhoWaitForItsReceiver) {
  // The first message of 1..4 reaches rank 0 at 2 already; it computes for a second as rank 1 does
  // from 4 on, and waits for it. Nobody has computed longer than 1 + 1 s.
  Builder builder(2);
  builder.compute(0, kFfBp, 0, 1).compute(0, kFactor, 2, 3);
  builder.compute(1, kFfBp, 0, 1).compute(1, kFactor, 4, 5);
  for (const int rank : {0, 1}) {
    builder.channel(rank, kGrad, 1, 4).channel(rank, kFactorComm, 5, 6);
  }
  for (const int rank : {0, 1}) {
    const CategoryTimes times = breakdown(builder.trace(), rank);
    EXPECT_EQ(times[kFfBp], Seconds(1));
    EXPECT_EQ(times[kGrad], Seconds(3));
    EXPECT_EQ(times[kFactor], Seconds(1));
    EXPECT_EQ(times[kFactorComm], Seconds(1));
  }
}

TEST(Breakdown, WakingUpAndStartingBelongToTheMessage) {
  // A message is asked for at 1, starts at 1.25, ends at 2, and the rank goes on at 2.5.
  Builder builder(2);
  for (const int rank : {0, 1}) {
    builder.compute(rank, kFfBp, 0, 1).channel(rank, kGrad, 1.25, 2);
    builder.compute(rank, kFactor, 2.5, 3);
  }
  const CategoryTimes times = breakdown(builder.trace(), 1);
  EXPECT_EQ(times[kFfBp], Seconds(1));
  EXPECT_EQ(times[kGrad], Seconds(1.5));
  EXPECT_EQ(times[kFactor], Seconds(0.5));
}

TEST(Breakdown, ChargesTheTailOfAnEarlyRankToTheLateOne) {
  Builder builder(2);
  builder.compute(0, kFfBp, 0, 2).compute(1, kFfBp, 0, 2).compute(1, kInverse, 2, 7);
  const CategoryTimes times = breakdown(builder.trace(), 0);
  EXPECT_EQ(times[kFfBp], Seconds(2));
  EXPECT_EQ(times[kInverse], Seconds(5));
}

TEST(Breakdown, OfAnEmptyTraceIsZero) {
  EXPECT_EQ(breakdown(Trace(3), 2).total(), Seconds(0));
  EXPECT_EQ(critical_rank(Trace(3)), 0);
}

TEST(Breakdown, CriticalRankIsTheLowestOfEquals) {
  Builder builder(3);
  builder.compute(1, kFfBp, 0, 2).compute(2, kFfBp, 0, 2).compute(0, kFfBp, 0, 1);
  EXPECT_EQ(critical_rank(builder.trace()), 1);
}

TEST(Breakdown, PartsAddUpToTheIterationForRandomTraces) {
  std::mt19937 random(7);
  const auto below = [&random](unsigned n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 500; ++round) {
    const int world = 1 + below(4);
    Builder builder(world);
    for (int rank = 0; rank < world; ++rank) {
      for (const Lane lane : {Lane::kCompute, Lane::kChannel}) {
        double now = 0;
        for (int event = below(8); event > 0; --event) {
          const double start = now + 0.25 * below(4);
          now = start + 0.25 * (1 + below(6));
          const Category category = kCategories[static_cast<std::size_t>(below(kCategoryCount))];
          if (lane == Lane::kCompute) {
            builder.compute(rank, category, start, now);
          } else {
            builder.channel(rank, category, start, now);
          }
        }
      }
    }
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_NEAR(breakdown(builder.trace(), rank).total().value(),
                  builder.trace().iteration().value(), 1e-12);
    }
  }
}

TEST(Utilisation, MeasuresBothLanesAndTheirOverlap) {
  // compute 0..4, 6..8; channel 3..7: both in 3..4 and 6..7.
  Builder builder(2);
  builder.compute(0, kFfBp, 0, 4).compute(0, kFactor, 6, 8).channel(0, kGrad, 3, 7);
  const auto ranks = utilisation(builder.trace());
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].compute, Seconds(6));
  EXPECT_EQ(ranks[0].channel, Seconds(4));
  EXPECT_EQ(ranks[0].hidden, Seconds(2));
  EXPECT_EQ(ranks[1].compute, Seconds(0));
}

TEST(FactorMessages, AreThoseOfTheChannelOfTheFirstRank) {
  Trace trace(2);
  const auto name = trace.intern("x");
  const auto add = [&](int rank, Lane lane, Category category, double start, double duration) {
    trace.add({rank, name, lane, category, Seconds(start), Seconds(duration)});
  };
  add(0, Lane::kChannel, Category::kFactorComm, 0, 0.25);
  add(0, Lane::kChannel, Category::kFactorComm, 1, 0.5);
  add(0, Lane::kChannel, Category::kGradientComm, 2, 1);
  add(0, Lane::kCompute, Category::kFactorComp, 0, 1);
  add(1, Lane::kChannel, Category::kFactorComm, 0, 1);
  EXPECT_EQ(factor_messages(trace).value(), 0.75);
}

}  // namespace
}  // namespace spdkfac
