// SPDX-License-Identifier: Apache-2.0
// Spread refreshes: which layers renew their inverses in which step, on all ranks alike.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "runtime/thread_net.h"
#include "runtime/thread_resume.h"
#include "spdkfac/plan/refresh_schedule.h"
#include "spdkfac/runtime/graph_steps.h"
#include "spdkfac/runtime/step_meter.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Steps = std::set<std::int64_t>;

KfacOptions spread_options(std::int64_t factors, std::int64_t inverses,
                           Refresh interval = Refresh::kFixed) {
  KfacOptions options{.damping = 0.1, .interval = interval};
  options.factor_interval = factors;
  options.inverse_interval = inverses;
  options.spread_refreshes = true;
  return options;
}

// The steps in which each layer's inverses changed, on one rank.
std::map<std::string, Steps> inverse_changes(const KfacOptions& options, std::int64_t steps,
                                             KfacCounters* counters = nullptr) {
  const std::vector<at::Tensor> inputs = inputs_of(1, steps);
  ThreadNet model;
  Preconditioner kfac(*model, options);
  std::map<std::string, Steps> found;
  std::map<std::string, at::Tensor> before;
  for (std::int64_t step = 0; step < steps; ++step) {
    thread_step(model, kfac, inputs[static_cast<std::size_t>(step)]);
    const KfacState state = kfac.state().read_all();
    for (const char* layer : {"first", "second"}) {
      const at::Tensor inverse = state.tensors.at(std::string(layer) + ".a_inverse");
      if (step == 0 || !torch::equal(inverse, before.at(layer))) found[layer].insert(step);
      before[layer] = inverse;
    }
  }
  if (counters != nullptr) *counters = kfac.counters();
  return found;
}

TEST(SpreadRefreshes, RenewEachLayerOnceInAnInterval) {
  // The second layer costs more, 5³ + 2³ against 3³ + 4³: it is the first of three parts, of which
  // the last has no layer. All begin in step 0.
  KfacCounters counters;
  const auto found = inverse_changes(spread_options(2, 6), 15, &counters);
  EXPECT_EQ(found.at("second"), (Steps{0, 6, 12}));
  EXPECT_EQ(found.at("first"), (Steps{0, 2, 8, 14}));
  EXPECT_EQ(counters.inverse_updates, 2 * (3 + 4));
  EXPECT_EQ(counters.inverses_skipped, 0);
}

TEST(SpreadRefreshes, MakeAsManyInversesAsRefreshesAtOnce) {
  KfacOptions options = spread_options(2, 4);
  KfacCounters spread;
  KfacCounters at_once;
  inverse_changes(options, 4 * 5, &spread);
  options.spread_refreshes = false;
  inverse_changes(options, 4 * 5, &at_once);
  // The layers of the second part are renewed twice in the first interval.
  EXPECT_EQ(spread.inverse_updates, at_once.inverse_updates + 2);
  EXPECT_EQ(spread.factor_updates, at_once.factor_updates);
}

TEST(SpreadRefreshes, OfGrowingIntervalsRenewEachLayerOnceFromOneRefreshToTheNext) {
  constexpr std::int64_t kSteps = 120;
  const auto found = inverse_changes(spread_options(3, 9, Refresh::kGrowing), kSteps);
  plan::RefreshSchedule schedule({3, 9}, Refresh::kGrowing);
  std::int64_t begin = 0;
  std::int64_t longest = 0;
  for (std::int64_t step = 1; step < kSteps; ++step) {
    if (!schedule.at(step).inverses) continue;
    for (const auto& [layer, steps] : found) {
      const auto renewed = std::distance(steps.lower_bound(begin), steps.lower_bound(step));
      EXPECT_EQ(renewed, 1) << layer << " from " << begin << " to " << step;
    }
    longest = std::max(longest, step - begin);
    begin = step;
  }
  EXPECT_EQ(longest, 9);
  EXPECT_NE(found.at("first"), found.at("second"));
}

TEST(SpreadRefreshes, OfOnePartChangeNoBit) {
  const std::vector<at::Tensor> inputs = inputs_of(1, 40);
  for (const std::int64_t interval : {1, 3}) {
    for (const Refresh refresh : {Refresh::kFixed, Refresh::kGrowing}) {
      ThreadRun run{.kfac = spread_options(interval, interval, refresh)};
      const at::Tensor spread = trained_net(run, {}, inputs, 0, kThreadExamples);
      run.kfac.spread_refreshes = false;
      EXPECT_TRUE(torch::equal(trained_net(run, {}, inputs, 0, kThreadExamples), spread));
    }
  }
}

TEST(SpreadRefreshes, LeaveNothingInTheTraceOfWhatHasItsTurnLater) {
  KfacOptions options = spread_options(1, 2);
  options.trace = true;
  ThreadNet model;
  Preconditioner kfac(*model, options);
  for (const at::Tensor& input : inputs_of(1, 2)) thread_step(model, kfac, input);
  std::ostringstream text;
  StepMeter(kfac).trace().write_perfetto(text);
  EXPECT_THAT(text.str(), AllOf(HasSubstr("inverse first"), Not(HasSubstr("inverse second")),
                                Not(HasSubstr("skipped"))));
}

TEST_F(ThreadRanks, EqualOneRankWithSpreadRefreshes) {
  for (const AlgorithmInfo& info : named_algorithms()) {
    for (const KfacOptions& options :
         {spread_options(1, 2), spread_options(2, 6), spread_options(2, 6, Refresh::kGrowing)}) {
      SCOPED_TRACE(info.name + " " + digest(options));
      const ThreadRun run{.algorithm = info.name, .kfac = options, .steps = 25};
      expect_ranks_equal_one_rank(run, 2);
    }
  }
}

// G of the first layer is zero until its turn comes again.
TEST_F(ThreadRanks, EqualOneRankWithSpreadRefreshesAndALayerWithoutInverses) {
  for (const AlgorithmInfo& info : named_algorithms()) {
    SCOPED_TRACE(info.name);
    const ThreadRun run{
        .algorithm = info.name, .kfac = spread_options(1, 4), .steps = 8, .zero_start = true};
    expect_ranks_equal_one_rank(run, 2);
  }
}

TEST_F(ThreadRanks, EqualOneRankWithSpreadRefreshesWhenPlansAreMadeAgain) {
  for (const char* algorithm : {"owner-reduce", "owner-precondition", "owner-blocks", "auto"}) {
    SCOPED_TRACE(algorithm);
    const ThreadRun run{
        .algorithm = algorithm, .kfac = spread_options(1, 3), .profile_steps = 2, .steps = 20};
    expect_ranks_equal_one_rank(run, 3);
  }
}

TEST_F(ThreadRanks, EqualOneRankWithSpreadRefreshesWhoseIntervalsChange) {
  for (const char* algorithm : {"d-kfac", "spd-kfac", "owner-precondition"}) {
    SCOPED_TRACE(algorithm);
    ThreadRun run{.algorithm = algorithm, .kfac = spread_options(1, 1), .steps = 20};
    run.before_step = [](Preconditioner& kfac, std::size_t step) {
      if (step == 5) kfac.change({.factor_interval = 2, .inverse_interval = 4});
      if (step == 14) kfac.change({.factor_interval = 1, .inverse_interval = 3});
    };
    expect_ranks_equal_one_rank(run, 2);
  }
}

TEST_F(ThreadRanks, SpreadRefreshesGoOnBitForBit) {
  for (const char* algorithm : {"spd-kfac", "owner-reduce", "owner-precondition"}) {
    for (const std::size_t stop : {1, 2, 3, 4, 5, 9, 16}) {
      SCOPED_TRACE(std::string(algorithm) + " from " + std::to_string(stop));
      const Refresh interval = stop % 2 == 0 ? Refresh::kGrowing : Refresh::kFixed;
      expect_resumes(algorithm, spread_options(2, 6, interval), stop, nullptr);
    }
    expect_resumes(algorithm, spread_options(2, 6), 11, [](Preconditioner& kfac, std::size_t step) {
      if (step == 7) kfac.change({.factor_interval = 1, .inverse_interval = 3});
    });
  }
}

TEST_F(ThreadRanks, RanksThatSpreadRefreshesAndOthersAreNamed) {
  std::array<std::string, 2> errors;
  run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    ThreadNet model;
    KfacOptions options = spread_options(1, 2);
    options.spread_refreshes = communicator->rank() == 1;
    errors.at(static_cast<std::size_t>(communicator->rank())) = config_error(
        [&] { Preconditioner(*model, options, on_threads(communicator, "spd-kfac")); });
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 0 has spread_refreshes=false)"));
  EXPECT_THAT(errors[1], HasSubstr("rank 1 has spread_refreshes=true)"));
}

TEST(SpreadRefreshes, NeedStepsThatRenewFactorsAndNoAdaptiveIntervals) {
  const auto error_of = [](const KfacOptions& options) {
    return config_error([&] { validate(options); });
  };
  EXPECT_EQ(error_of(spread_options(3, 9, Refresh::kGrowing)), "(no error)");
  EXPECT_THAT(error_of(spread_options(1, 5, Refresh::kAdaptive)),
              AllOf(HasSubstr("spread_refreshes=true"), HasSubstr("interval=auto or fixed")));
  for (const Refresh interval : {Refresh::kFixed, Refresh::kGrowing}) {
    EXPECT_THAT(error_of(spread_options(2, 5, interval)),
                AllOf(HasSubstr("inverse_interval=5"), HasSubstr("factor_interval=2"),
                      HasSubstr("spread_refreshes=true")));
  }
  ThreadNet model;
  Preconditioner kfac(*model, spread_options(2, 6));
  EXPECT_THAT(config_error([&] { kfac.change({.inverse_interval = 5}); }),
              HasSubstr("a multiple of factor_interval=2"));
  EXPECT_EQ(kfac.options().inverse_interval, 6);
}

TEST(SpreadRefreshes, ArePartOfAStateWhereTheyAreOn) {
  KfacOptions options = spread_options(1, 2);
  const std::string spread = digest(options);
  options.spread_refreshes = false;
  EXPECT_THAT(digest(options), Not(HasSubstr("spread"))) << "as in states of version 0.2.0";
  EXPECT_EQ(spread, digest(options) + " spread_refreshes=true");
  EXPECT_THAT(config_error([&] { options_of_digest(options, spread); }),
              HasSubstr("other options"));
  ThreadNet model;
  Preconditioner kfac(*model, spread_options(1, 2));
  thread_step(model, kfac, inputs_of(1, 1)[0]);
  const KfacState state = kfac.state().read_all();
  ThreadNet again;
  Preconditioner other(*again, options);
  EXPECT_THAT(config_error([&] { other.load(state); }), HasSubstr("other options"));
}

TEST(SpreadRefreshes, AreNotRecordedAsGraphs) {
  ThreadNet model;
  Preconditioner kfac(*model, spread_options(1, 2));
  EXPECT_THAT(config_error([&] { GraphSteps(kfac, [] {}); }), HasSubstr("spread_refreshes"));
}

}  // namespace
}  // namespace spdkfac
