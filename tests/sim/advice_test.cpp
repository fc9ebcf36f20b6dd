// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/advice.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "sim/random_cases.h"
#include "spdkfac/sim/auto_planner.h"
#include "support/models.h"
#include "support/random.h"

namespace spdkfac {
namespace {

using support::affine_costs;
using support::layer_times;
using support::Random;
using support::random_cluster;
using support::random_model;
using support::second_order_presets;
using support::tiny_model;

const sim::Limit& limit(const sim::Advice& advice, const std::string& id) {
  return *std::find_if(advice.limits.begin(), advice.limits.end(),
                       [&](const sim::Limit& one) { return one.id == id; });
}

std::vector<std::string> ids(const sim::Advice& advice) {
  std::vector<std::string> result;
  for (const sim::Change& change : advice.changes) result.push_back(change.id);
  return result;
}

const sim::Change& change(const sim::Advice& advice, const std::string& id) {
  return *std::find_if(advice.changes.begin(), advice.changes.end(),
                       [&](const sim::Change& one) { return one.id == id; });
}

bool has(const sim::Advice& advice, const std::string& id) {
  const std::vector<std::string> all = ids(advice);
  return std::find(all.begin(), all.end(), id) != all.end();
}

TEST(Advise, WhereOnlyBytesCostTwiceTheBandwidthHalvesTheIteration) {
  // Packed A 6, packed G 10, gradient 12: 28 elements at 1 s, reduced once to every worker. To own
  // a layer would add a broadcast.
  const sim::Advice advice =
      sim::advise({tiny_model({{3, 4}}), affine_costs(2, 0, 1), 2, preset(kAutoAlgorithm)});
  EXPECT_EQ(advice.iteration, Seconds(28));
  EXPECT_EQ(advice.limiting, "bytes");
  EXPECT_EQ(limit(advice, "bytes").alone, Seconds(28));
  EXPECT_EQ(limit(advice, "bytes").without, Seconds(0));
  EXPECT_EQ(limit(advice, "startups").alone, Seconds(0));
  EXPECT_EQ(limit(advice, "startups").without, Seconds(28));
  EXPECT_EQ(change(advice, "bandwidth_x2").iteration, Seconds(14));
  EXPECT_DOUBLE_EQ(change(advice, "bandwidth_x2").speedup, 2);
  EXPECT_DOUBLE_EQ(change(advice, "network_x10").speedup, 10);
  EXPECT_EQ(change(advice, "startup_x2").speedup, 1);
  EXPECT_EQ(change(advice, "compute_x2").speedup, 1);
  // A batch of twice the size computes for nothing as well, and sends as much.
  EXPECT_EQ(change(advice, "batch_x2").speedup, 2);
}

TEST(Advise, WhereOnlyStartupsCostOneMessageIsLeft) {
  // All tensors are ready at once and share one message of 1 s.
  const sim::Advice advice =
      sim::advise({tiny_model({{3, 4}, {2, 2}}), affine_costs(4, 1, 0), 4, preset(kAutoAlgorithm)});
  EXPECT_EQ(advice.iteration, Seconds(1));
  EXPECT_EQ(advice.limiting, "startups");
  EXPECT_EQ(limit(advice, "bytes").without, Seconds(1));
  EXPECT_DOUBLE_EQ(change(advice, "startup_x2").speedup, 2);
  EXPECT_EQ(change(advice, "bandwidth_x2").speedup, 1);
}

TEST(Advise, OneHugeInverseLimits) {
  // 100³ beside five inverses of 1 s, which other workers do meanwhile; the network is free.
  const sim::Advice advice =
      sim::advise({tiny_model({{100, 1}, {1, 1}, {1, 1}}),
                   affine_costs(4, 0, 0, CubicInverse{0, 0, 0, 1}), 4, preset(kAutoAlgorithm)});
  EXPECT_EQ(advice.iteration, Seconds(1e6));
  EXPECT_EQ(advice.largest_inverse, Seconds(1e6));
  EXPECT_EQ(advice.all_inverses, Seconds(1e6 + 5));
  EXPECT_EQ(advice.limiting, "largest_inverse");
  EXPECT_EQ(limit(advice, "inverses").without, Seconds(0));
  // A quarter of 1 000 005.
  EXPECT_DOUBLE_EQ(limit(advice, "largest_inverse").without.value(), 250001.25);
  EXPECT_EQ(change(advice, "inverses_x2").speedup, 2);
  // More workers cannot divide it: the same time for twice as many examples.
  EXPECT_EQ(change(advice, "workers_x2").iteration, Seconds(1e6));
  EXPECT_EQ(change(advice, "workers_x2").speedup, 2);
}

TEST(Advise, ManyEqualInversesLimitByTheirSum) {
  // Eight inverses of 1 s on two workers: 4 s each; an equal share is longer than any of them.
  const sim::Advice advice =
      sim::advise({tiny_model({{1, 1}, {1, 1}, {1, 1}, {1, 1}}),
                   affine_costs(2, 0, 0, CubicInverse{1, 0, 0, 0}), 2, preset(kAutoAlgorithm)});
  EXPECT_EQ(advice.iteration, Seconds(4));
  EXPECT_EQ(advice.limiting, "inverses");
  EXPECT_EQ(limit(advice, "largest_inverse").without, Seconds(4));
  EXPECT_EQ(limit(advice, "largest_inverse").alone, Seconds(1));
}

TEST(Advise, OnAFreeNetworkNoNetworkHelps) {
  const sim::Advice advice = sim::advise({tiny_model({{3, 4}, {2, 2}}, layer_times(1, 2, 1, 1)),
                                          affine_costs(4, 0, 0), 4, preset(kAutoAlgorithm)});
  EXPECT_EQ(advice.iteration, Seconds(10));
  for (const char* id : {"bandwidth_x2", "startup_x2", "network_x10"}) {
    EXPECT_EQ(change(advice, id).speedup, 1) << id;
  }
  EXPECT_EQ(limit(advice, "bytes").without, Seconds(10));
  EXPECT_EQ(advice.limiting, "forward_backward");
}

TEST(Advise, OnOneWorkerEverythingAddsUp) {
  // Forward 1, backward 2, factors 3 + 4, two inverses of 5: 20 s.
  const sim::Advice advice =
      sim::advise({tiny_model({{3, 4}}, layer_times(1, 2, 3, 4)),
                   affine_costs(1, 9, 9, CubicInverse{5, 0, 0, 0}), 1, preset(kAutoAlgorithm)});
  EXPECT_EQ(advice.iteration, Seconds(20));
  EXPECT_EQ(limit(advice, "forward_backward").alone, Seconds(3));
  EXPECT_EQ(limit(advice, "forward_backward").without, Seconds(17));
  EXPECT_EQ(limit(advice, "factor_computation").alone, Seconds(7));
  EXPECT_EQ(limit(advice, "inverses").without, Seconds(10));
  EXPECT_EQ(advice.limiting, "inverses");
  EXPECT_EQ(change(advice, "compute_x2").speedup, 2);
  // Two examples in 2·(3 + 7) + 10 = 30 s instead of one in 20.
  EXPECT_EQ(change(advice, "batch_x2").iteration, Seconds(30));
  EXPECT_DOUBLE_EQ(change(advice, "batch_x2").speedup, 4.0 / 3);
  // One step of 20 s and nine of 10, or of 3.
  EXPECT_DOUBLE_EQ(change(advice, "inverse_interval_x10").iteration.value(), 11);
  EXPECT_DOUBLE_EQ(change(advice, "intervals_x10").iteration.value(), 4.7);
  // Nothing travels, and costs of one worker say nothing about two.
  for (const char* id :
       {"bandwidth_x2", "startup_x2", "network_x10", "workers_half", "workers_x2"}) {
    EXPECT_FALSE(has(advice, id)) << id;
  }
}

TEST(Advise, CountsIntervalsFromThoseGiven) {
  sim::Scenario scenario{tiny_model({{3, 4}}, layer_times(1, 2, 3, 4)), affine_costs(2, 1, 1), 2,
                         preset("spd-kfac")};
  EXPECT_FALSE(
      has(sim::advise(scenario), "factor_interval_x10"));  // the inverses would be in the way
  scenario.intervals.inverses = 100;
  const sim::Advice advice = sim::advise(scenario);
  EXPECT_EQ(change(advice, "factor_interval_x10").intervals, RefreshIntervals({10, 100}));
  EXPECT_EQ(change(advice, "intervals_x10").intervals, RefreshIntervals({10, 1000}));
}

TEST(Advise, OfANamedAlgorithmKeepsItAndOffersAuto) {
  const sim::Scenario scenario{tiny_model({{3, 4}, {5, 2}}, layer_times(1, 2, 3, 4)),
                               affine_costs(2, 1, 1, CubicInverse{9, 0, 0, 0}), 2,
                               preset("d-kfac")};
  const sim::Advice advice = sim::advise(scenario);
  EXPECT_EQ(advice.iteration,
            average_iteration(scenario.model, scenario.costs, 2, preset("d-kfac"), {}));
  EXPECT_EQ(advice.options, preset("d-kfac"));
  EXPECT_EQ(change(advice, "bandwidth_x2").options, preset("d-kfac"));
  EXPECT_GT(change(advice, "auto").speedup, 1);
  EXPECT_FALSE(
      has(sim::advise({scenario.model, scenario.costs, 2, preset(kAutoAlgorithm)}), "auto"));
}

TEST(Advise, SaysWhichChangesAreNotTheSameTraining) {
  const sim::Advice advice = sim::advise({tiny_model({{3, 4}}, layer_times(1, 2, 3, 4)),
                                          affine_costs(2, 1, 1), 2, preset(kAutoAlgorithm)});
  const std::set<std::string> other = {"inverse_interval_x10", "intervals_x10", "batch_x2",
                                       "workers_half", "workers_x2"};
  for (const sim::Change& one : advice.changes) {
    EXPECT_EQ(one.training.empty(), !other.contains(one.id)) << one.id;
  }
  EXPECT_EQ(change(advice, "workers_x2").training, "global batch 4");
  EXPECT_EQ(change(advice, "workers_x2").needs, sim::Needs::kHardware);
  EXPECT_EQ(change(advice, "workers_half").needs, sim::Needs::kOption);
}

TEST(Advise, ReportsItsProgress) {
  std::vector<std::size_t> calls;
  std::size_t total = 0;
  sim::advise({tiny_model({{3, 4}}), affine_costs(2, 1, 1), 2, preset(kAutoAlgorithm)},
              [&](std::size_t done, std::size_t of) {
                calls.push_back(done);
                total = of;
              });
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(calls.size(), total);
  EXPECT_EQ(calls.front(), 1u);
  EXPECT_EQ(calls.back(), total);
}

// Sums in another order may differ in the last digits.
constexpr double kRoundingFactor = 1 + 1e-12;

TEST(Advise, OfRandomCasesIsSortedAndFasterPartsNeverCost) {
  Random random(43);
  const std::vector<PlanOptions> presets = second_order_presets();
  for (int i = 0; i < 60; ++i) {
    sim::Scenario s;
    s.model = random_model(random, static_cast<std::size_t>(random.integer(1, 5)));
    s.costs = random_cluster(random, static_cast<int>(random.integer(2, 8)));
    s.world = static_cast<int>(random.integer(1, 8));
    const auto last = static_cast<std::int64_t>(presets.size()) - 1;
    s.options = i % 2 == 0 ? preset(kAutoAlgorithm)
                           : presets[static_cast<std::size_t>(random.integer(0, last))];
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << s.options.algorithm << ", "
                                    << s.model.layers.size() << " layers, " << s.world);

    const sim::Advice advice = sim::advise(s);

    for (const sim::Limit& one : advice.limits) {
      EXPECT_LE(one.without, advice.iteration * kRoundingFactor) << one.id;
      EXPECT_LE(one.alone, advice.iteration * kRoundingFactor) << one.id;
    }
    for (const sim::Change& one : advice.changes) {
      if (one.needs == sim::Needs::kHardware && one.training.empty()) {
        EXPECT_GE(one.speedup * kRoundingFactor, 1) << one.id;
      }
    }
    EXPECT_TRUE(std::is_sorted(
        advice.limits.begin(), advice.limits.end(),
        [](const sim::Limit& a, const sim::Limit& b) { return a.without < b.without; }));
    EXPECT_TRUE(std::is_sorted(
        advice.changes.begin(), advice.changes.end(),
        [](const sim::Change& a, const sim::Change& b) { return a.speedup > b.speedup; }));
    const std::vector<std::string> names = ids(advice);
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  }
}

}  // namespace
}  // namespace spdkfac
