// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/simulator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/random_cases.h"
#include "sim/timeline_support.h"
#include "spdkfac/plan/planner.h"
#include "support/config_error.h"
#include "support/models.h"
#include "support/random.h"

namespace spdkfac {
namespace {

using support::affine_costs;
using support::config_error;
using support::layer_times;
using support::Random;
using support::random_case;
using support::RandomCase;
using support::tiny_model;
using ::testing::AllOf;
using ::testing::HasSubstr;
using timeline::compute;
using timeline::Timeline;

// Iterations of random cases take up to some hundred seconds; sums of their parts round.
constexpr double kRounding = 1e-9;
constexpr int kCases = 300;

std::string in_words(const RandomCase& drawn) {
  std::ostringstream text;
  text << drawn;
  return text.str();
}

// Some ranks slower, some faster.
std::map<int, double> random_slowness(Random& random, int world) {
  std::map<int, double> slow;
  for (int rank = 0; rank < world; ++rank) {
    if (random.coin()) slow[rank] = random.real(0.5, 3);
  }
  return slow;
}

std::vector<TraceEvent> lane_events(const Trace& trace, int rank, Lane lane) {
  std::vector<TraceEvent> events;
  for (const TraceEvent& event : trace.events()) {
    if (event.rank == rank && event.lane == lane) events.push_back(event);
  }
  return events;
}

bool same_events(const Trace& left, const Trace& right) {
  const auto same = [&](const TraceEvent& a, const TraceEvent& b) {
    return a.rank == b.rank && left.names()[a.name] == right.names()[b.name] && a.lane == b.lane &&
           a.category == b.category && a.start == b.start && a.duration == b.duration;
  };
  return std::equal(left.events().begin(), left.events().end(), right.events().begin(),
                    right.events().end(), same);
}

TEST(Simulator, EventsOfOneLaneNeverOverlap) {
  Random random(1);
  for (int i = 0; i < kCases; ++i) {
    const RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    const IterationResult simulation =
        simulate(drawn.plan, drawn.model, drawn.costs,
                 {.slow = random_slowness(random, drawn.plan.world), .jitter = 0.2, .seed = 5});
    for (int rank = 0; rank < drawn.plan.world; ++rank) {
      for (const Lane lane : {Lane::kCompute, Lane::kChannel}) {
        double free_at = 0;
        for (const TraceEvent& event : lane_events(simulation.trace, rank, lane)) {
          ASSERT_GE(event.duration, Seconds(0));
          ASSERT_GE(event.start.value(), free_at - kRounding);
          free_at = event.end().value();
        }
      }
    }
  }
}

TEST(Simulator, CollectivesRunAtTheSameTimeOnEveryRank) {
  Random random(2);
  for (int i = 0; i < kCases; ++i) {
    const RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    const IterationResult simulation = simulate(
        drawn.plan, drawn.model, drawn.costs, {.slow = random_slowness(random, drawn.plan.world)});
    const auto first = lane_events(simulation.trace, 0, Lane::kChannel);
    for (int rank = 1; rank < drawn.plan.world; ++rank) {
      const auto events = lane_events(simulation.trace, rank, Lane::kChannel);
      ASSERT_EQ(events.size(), first.size());
      for (std::size_t e = 0; e < events.size(); ++e) {
        ASSERT_EQ(events[e].start, first[e].start);
        ASSERT_EQ(events[e].duration, first[e].duration);
        ASSERT_EQ(events[e].category, first[e].category);
      }
    }
  }
}

TEST(Simulator, CarriesEveryMessageAndEveryExchangeOfThePlan) {
  Random random(3);
  for (int i = 0; i < kCases; ++i) {
    const RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    const IterationResult simulation = simulate(drawn.plan, drawn.model, drawn.costs);
    EXPECT_EQ(lane_events(simulation.trace, 0, Lane::kChannel).size(),
              drawn.plan.messages.size() + result_broadcasts(drawn.plan, drawn.model).size());
  }
}

TEST(Simulator, IterationHoldsTheWorkOfEachRankAndOfTheChannel) {
  Random random(4);
  for (int i = 0; i < kCases; ++i) {
    const RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    const IterationResult simulation = simulate(
        drawn.plan, drawn.model, drawn.costs, {.slow = random_slowness(random, drawn.plan.world)});
    for (int rank = 0; rank < drawn.plan.world; ++rank) {
      for (const Lane lane : {Lane::kCompute, Lane::kChannel}) {
        double sum = 0;
        for (const TraceEvent& event : lane_events(simulation.trace, rank, lane)) {
          sum += event.duration.value();
        }
        ASSERT_LE(sum, simulation.iteration.value() + kRounding);
      }
    }
    EXPECT_NEAR(simulation.trace.iteration().value(), simulation.iteration.value(), kRounding);
  }
}

TEST(Simulator, SameCallGivesTheSameTrace) {
  Random random(5);
  for (int i = 0; i < kCases; ++i) {
    const RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    const SimulationOptions options{.slow = random_slowness(random, drawn.plan.world),
                                    .jitter = i % 2 == 0 ? 0 : 0.3,
                                    .seed = static_cast<std::uint64_t>(i)};
    const IterationResult first = simulate(drawn.plan, drawn.model, drawn.costs, options);
    const IterationResult second = simulate(drawn.plan, drawn.model, drawn.costs, options);
    EXPECT_TRUE(same_events(first.trace, second.trace));
    EXPECT_EQ(first.iteration, second.iteration);
    EXPECT_EQ(first.inverse_load, second.inverse_load);
  }
}

TEST(Simulator, AFullStepThatRenewsNoInversesIsOneOfFactors) {
  Random random(8);
  for (int i = 0; i < kCases; ++i) {
    const ModelSpec model = random_model(random, 5);
    const CostModel costs = random_cluster(random, 4);
    for (const char* algorithm : {"d-kfac", "mpd-kfac", "spd-kfac", "owner-precondition"}) {
      SCOPED_TRACE(algorithm);
      const auto plan_of = [&](StepKind step) {
        Plan plan = make_plan(model, costs, 4, preset(algorithm), {2, 4}, step);
        // Means of diagonals travel in all full steps.
        std::erase_if(plan.messages, [](const Message& message) {
          return message.members.front().kind == TensorKind::kDiagonalMeans;
        });
        return plan;
      };
      const SimulationOptions nothing{.renewed = std::vector<bool>(model.layers.size())};
      const IterationResult full = simulate(plan_of(StepKind::kFull), model, costs, nothing);
      const IterationResult factors = simulate(plan_of(StepKind::kFactors), model, costs);
      EXPECT_EQ(full.iteration, factors.iteration);
      EXPECT_EQ(full.sent_bytes, factors.sent_bytes);
      EXPECT_EQ(full.inverse_load, factors.inverse_load);
      EXPECT_TRUE(same_events(full.trace, factors.trace));
    }
  }
}

TEST(Simulator, IterationDoesNotDependOnRecordingTheTrace) {
  Random random(6);
  for (int i = 0; i < kCases; ++i) {
    const RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    SimulationOptions options{.slow = random_slowness(random, drawn.plan.world),
                              .jitter = i % 2 == 0 ? 0 : 0.3,
                              .seed = 9};
    const IterationResult traced = simulate(drawn.plan, drawn.model, drawn.costs, options);
    options.trace = false;
    const IterationResult untraced = simulate(drawn.plan, drawn.model, drawn.costs, options);
    EXPECT_EQ(traced.iteration, untraced.iteration);
    EXPECT_EQ(traced.inverse_load, untraced.inverse_load);
    EXPECT_TRUE(untraced.trace.events().empty());
  }
}

TEST(Simulator, RanksThatOwnNothingHaveEqualTraces) {
  Random random(7);
  for (int i = 0; i < kCases; ++i) {
    const RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    std::vector<bool> owns(static_cast<std::size_t>(drawn.plan.world), false);
    for (const FactorPlacement& factor : drawn.plan.placements) {
      if (factor.owner) owns.at(static_cast<std::size_t>(*factor.owner)) = true;
    }
    const IterationResult simulation = simulate(drawn.plan, drawn.model, drawn.costs);
    std::optional<Timeline> expected;
    for (int rank = 0; rank < drawn.plan.world; ++rank) {
      if (owns[static_cast<std::size_t>(rank)]) continue;
      const Timeline work = compute(simulation, rank);
      if (!expected) expected = work;
      EXPECT_EQ(work, *expected);
    }
  }
}

TEST(Simulator, SlowingARankNeverMakesTheIterationShorter) {
  Random random(8);
  for (int i = 0; i < kCases; ++i) {
    RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    // Otherwise a delayed message may stop slowing the computation of all.
    drawn.costs.overheads.compute_rate_under_communication = 1;
    SimulationOptions options{.slow = random_slowness(random, drawn.plan.world), .trace = false};
    const Seconds before = simulate(drawn.plan, drawn.model, drawn.costs, options).iteration;
    const int rank = static_cast<int>(random.integer(0, drawn.plan.world - 1));
    const auto known = options.slow.emplace(rank, 1.0).first;
    known->second *= random.real(1, 4);
    const Seconds after = simulate(drawn.plan, drawn.model, drawn.costs, options).iteration;
    EXPECT_GE(after.value(), before.value() - kRounding);
  }
}

TEST(Simulator, SlowerMessagesBesideComputationNeverMakeTheIterationShorter) {
  Random random(12);
  for (int i = 0; i < kCases; ++i) {
    RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    const SimulationOptions options{.slow = random_slowness(random, drawn.plan.world),
                                    .trace = false};
    double& rate = drawn.costs.overheads.communication_rate_under_computation;
    Seconds before(0);
    for (const double next : {1.0, 0.8, 0.4, 0.1}) {
      rate = next;
      const Seconds after = simulate(drawn.plan, drawn.model, drawn.costs, options).iteration;
      EXPECT_GE(after.value(), before.value() - kRounding) << "rate " << rate;
      before = after;
    }
  }
}

TEST(Simulator, UnpackingOnArrivalIsNeverLater) {
  Random random(13);
  int sooner = 0;
  for (int i = 0; i < kCases; ++i) {
    RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    const SimulationOptions options{.slow = random_slowness(random, drawn.plan.world),
                                    .trace = false};
    Overheads& overheads = drawn.costs.overheads;
    overheads.compute_rate_under_communication = 1;
    overheads.communication_rate_under_computation = 1;
    overheads.unpack_on_arrival = false;
    const Seconds at_end = simulate(drawn.plan, drawn.model, drawn.costs, options).iteration;
    overheads.unpack_on_arrival = true;
    const Seconds on_arrival = simulate(drawn.plan, drawn.model, drawn.costs, options).iteration;
    EXPECT_LE(on_arrival.value(), at_end.value() + kRounding);
    if (on_arrival < at_end) ++sooner;
  }
  EXPECT_GT(sooner, kCases / 10);
}

TEST(Simulator, ScalesCostsToTheWorldOfThePlan) {
  Random random(9);
  for (int i = 0; i < kCases; ++i) {
    const RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    const CostModel larger = support::random_cluster(random, 8);
    EXPECT_EQ(simulate(drawn.plan, drawn.model, larger).iteration,
              simulate(drawn.plan, drawn.model, larger.for_world(drawn.plan.world)).iteration);
  }
}

TEST(Simulator, StepsHoldOnlyWhatTheyRefresh) {
  Random random(10);
  for (int i = 0; i < kCases; ++i) {
    const RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    const IterationResult simulation = simulate(drawn.plan, drawn.model, drawn.costs);
    for (const TraceEvent& event : simulation.trace.events()) {
      if (drawn.plan.step != StepKind::kFull) {
        ASSERT_NE(event.category, Category::kInverseComp);
      }
      if (drawn.plan.step == StepKind::kGradients) {
        ASSERT_NE(event.category, Category::kFactorComp);
        ASSERT_NE(event.category, Category::kFactorComm);
      }
    }
  }
}

TEST(Simulator, InverseLoadIsTheTimeSpentInverting) {
  Random random(11);
  for (int i = 0; i < kCases; ++i) {
    RandomCase drawn = random_case(random);
    SCOPED_TRACE(in_words(drawn));
    // Without these all of inverse_comp is inverting.
    const double rate = drawn.costs.overheads.compute_rate_under_communication;
    drawn.costs.overheads = {Seconds(0), Seconds(0), Seconds(0), rate};
    const IterationResult simulation = simulate(
        drawn.plan, drawn.model, drawn.costs, {.slow = random_slowness(random, drawn.plan.world)});
    ASSERT_EQ(simulation.inverse_load.size(), static_cast<std::size_t>(drawn.plan.world));
    for (int rank = 0; rank < drawn.plan.world; ++rank) {
      double sum = 0;
      for (const TraceEvent& event : lane_events(simulation.trace, rank, Lane::kCompute)) {
        if (event.category == Category::kInverseComp) sum += event.duration.value();
      }
      EXPECT_NEAR(simulation.inverse_load[static_cast<std::size_t>(rank)].value(), sum, kRounding);
    }
  }
}

// Eight tasks of one second and, on one worker, nothing else.
RandomCase eight_seconds() {
  RandomCase result;
  result.model = tiny_model({{1, 1}, {1, 1}}, layer_times(1, 1, 1, 1));
  result.costs = affine_costs(1, 0, 0);
  result.plan = make_plan(result.model, result.costs, 1, preset("kfac"));
  return result;
}

SimulationOptions with_jitter(double jitter, std::uint64_t seed = 0) {
  SimulationOptions options;
  options.jitter = jitter;
  options.seed = seed;
  return options;
}

TEST(Jitter, StretchesEachTaskWithinItsBounds) {
  const RandomCase fixed = eight_seconds();
  EXPECT_EQ(simulate(fixed.plan, fixed.model, fixed.costs).iteration, Seconds(8));
  std::vector<double> durations;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const IterationResult simulation =
        simulate(fixed.plan, fixed.model, fixed.costs, with_jitter(0.25, seed));
    for (const auto& slot : compute(simulation, 0)) durations.push_back(slot.end - slot.start);
  }
  ASSERT_EQ(durations.size(), 400U);
  double mean = 0;
  for (const double duration : durations) {
    EXPECT_GE(duration, 0.75 - kRounding);
    EXPECT_LE(duration, 1.25 + kRounding);
    mean += duration / 400;
  }
  // Uniform in [0.75, 1.25]: standard deviation 0.5/sqrt(12) = 0.144, of the mean of 400 0.0072.
  EXPECT_NEAR(mean, 1, 5 * 0.0072);
  const auto [least, most] = std::minmax_element(durations.begin(), durations.end());
  EXPECT_LT(*least, 0.8);
  EXPECT_GT(*most, 1.2);
}

TEST(Jitter, FollowsTheSeed) {
  const RandomCase fixed = eight_seconds();
  const auto iteration = [&](std::uint64_t seed) {
    return simulate(fixed.plan, fixed.model, fixed.costs, with_jitter(0.25, seed)).iteration;
  };
  EXPECT_EQ(iteration(3), iteration(3));
  EXPECT_NE(iteration(3), iteration(4));
}

TEST(Jitter, DiffersBetweenRanks) {
  const ModelSpec model = tiny_model({{1, 1}}, layer_times(1, 1, 0, 0));
  const CostModel costs = affine_costs(2, 1, 0);
  const Plan plan = make_plan(model, costs, 2, preset("sgd"));
  const IterationResult simulation = simulate(plan, model, costs, with_jitter(0.25, 1));
  EXPECT_NE(compute(simulation, 0), compute(simulation, 1));
}

std::string error_of(const SimulationOptions& options) {
  const RandomCase fixed = eight_seconds();
  return config_error([&] { simulate(fixed.plan, fixed.model, fixed.costs, options); });
}

TEST(SimulationOptions, SlownessMustBePositiveAndOfARankThatExists) {
  EXPECT_THAT(error_of({.slow = {{0, 0.0}}}), AllOf(HasSubstr("slow"), HasSubstr("0")));
  EXPECT_THAT(error_of({.slow = {{0, -1.5}}}), AllOf(HasSubstr("slow"), HasSubstr("-1.5")));
  EXPECT_THAT(error_of({.slow = {{0, std::nan("")}}}), AllOf(HasSubstr("slow"), HasSubstr("nan")));
  // One worker: there is no rank 7.
  EXPECT_THAT(error_of({.slow = {{7, 2.0}}}), AllOf(HasSubstr("slow"), HasSubstr("7")));
  EXPECT_THAT(error_of({.slow = {{-1, 2.0}}}), AllOf(HasSubstr("slow"), HasSubstr("-1")));
  EXPECT_EQ(error_of({.slow = {{0, 0.5}}}), "(no error)");
}

TEST(SimulationOptions, SlownessMustBeFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(error_of({.slow = {{0, infinity}}}), AllOf(HasSubstr("slow"), HasSubstr("inf")));
}

TEST(SimulationOptions, JitterMustLeaveTimesPositive) {
  EXPECT_THAT(error_of(with_jitter(-0.1)), AllOf(HasSubstr("jitter"), HasSubstr("-0.1")));
  EXPECT_THAT(error_of(with_jitter(1.5)), AllOf(HasSubstr("jitter"), HasSubstr("1.5")));
  EXPECT_THAT(error_of(with_jitter(std::nan(""))), AllOf(HasSubstr("jitter"), HasSubstr("nan")));
  EXPECT_EQ(error_of(with_jitter(0.5)), "(no error)");
}

}  // namespace
}  // namespace spdkfac
