// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/emulated_rank.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "spdkfac/comm/mirrored_peers.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/sim/simulator.h"
#include "support/models.h"

namespace spdkfac::bench {
namespace {

// Inverses of d rows take d seconds, preconditioning 2·d_A·d_G·(d_A + d_G) / 32.
CostModel costs_for(int world) {
  CostModel costs = support::affine_costs(world, 1, 0.5, CubicInverse{.c1 = 1});
  costs.compute = ComputeRates{FlopsPerSecond(32), FlopsPerSecond(32), FlopsPerSecond(32)};
  return costs;
}

ModelSpec two_layers() {
  return support::tiny_model({{4, 2}, {8, 2}}, support::layer_times(1, 1, 1, 1));
}

TEST(EmulatedRank, TakesFromTheNearestWhatOthersWouldTime) {
  ModelSpec model = two_layers();
  model.layers[0].times->inverse_a = Seconds(2);     // half of what the costs say
  model.layers[0].times->inverse_g = Seconds(6);     // three times
  model.layers[0].times->precondition = Seconds(6);  // 2·4·2·6/32 = 3: twice

  const ModelSpec all = with_absent_times(model, costs_for(4));

  EXPECT_EQ(all.layers[0].times->inverse_a, Seconds(2));
  EXPECT_EQ(all.layers[0].times->inverse_g, Seconds(6));
  EXPECT_EQ(all.layers[0].times->precondition, Seconds(6));
  EXPECT_EQ(all.layers[1].times->inverse_a, Seconds(4));      // 8, as that of 4 rows
  EXPECT_EQ(all.layers[1].times->inverse_g, Seconds(6));      // of 2 rows as well
  EXPECT_EQ(all.layers[1].times->precondition, Seconds(20));  // 2·8·2·10/32 = 10
}

TEST(EmulatedRank, LeavesWhatNothingWasTimedOfToTheCosts) {
  const ModelSpec all = with_absent_times(two_layers(), costs_for(4));
  EXPECT_FALSE(all.layers[0].times->inverse_a.has_value());
  EXPECT_FALSE(all.layers[1].times->precondition.has_value());
  ModelSpec untimed = two_layers();
  untimed.layers[1].times.reset();
  EXPECT_FALSE(with_absent_times(untimed, costs_for(4)).layers[1].times.has_value());
}

TEST(EmulatedRank, DoesTheWorkOfTheOneThatComputesLongest) {
  const CostModel costs = costs_for(4);
  const Planner plain = [&](const ModelSpec& model, const RefreshIntervals& intervals,
                            StepKind kind) {
    return make_plan(model, costs, 4, preset("mpd-kfac"), intervals, kind);
  };
  // Dealt out in turn: A of the first layer, 4 s, to rank 0; G, 2 s, to 1; A of the second, 8 s, to
  // 2; G, 2 s, to 3.
  const Plan dealt = plain(two_layers(), {}, StepKind::kFull);
  ASSERT_EQ(dealt.placements[2].owner, 2);

  const Plan plan = planner_of_emulated_rank(plain, costs, 3)(two_layers(), {}, StepKind::kFull);
  EXPECT_EQ(plan.placements[0].owner, 0);
  EXPECT_EQ(plan.placements[1].owner, 1);
  EXPECT_EQ(plan.placements[2].owner, 3);
  EXPECT_EQ(plan.placements[3].owner, 2);

  // Once its 2 s are timed as 20, those of the other G are taken to be 20 as well: of equals the
  // lowest rank, 1, is the one.
  ModelSpec timed = two_layers();
  timed.layers[1].times->inverse_g = Seconds(20);
  timed.layers[1].times->inverse_a = Seconds(8);
  const Plan again = planner_of_emulated_rank(plain, costs, 3)(timed, {}, StepKind::kFull);
  EXPECT_EQ(again.placements[1].owner, 3);
  EXPECT_EQ(again.placements[3].owner, 1);
}

// How long each message of a plan takes, by name.
using Charges = std::vector<std::pair<std::string, Seconds>>;

// Notes what the link of an emulated rank charges for the messages of plans.
class NotingLink final : public Communicator {
 public:
  NotingLink(int world, const CostModel& costs) : inner_(0, world), link_(link_of(costs)) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Work start(Request request) override {
    if (request.charged)
      charges.emplace_back(request.what, link_(request.operation, request.load()));
    return inner_.start(std::move(request));
  }
  Charges charges;

 private:
  comm::MirroredPeers inner_;
  EmulatedLink::Duration link_;
};

Charges simulated_charges(const Plan& plan, const ModelSpec& model, const CostModel& costs) {
  Charges charges;
  const IterationResult result = simulate(plan, model, costs);
  for (const TraceEvent& event : result.trace.events()) {
    if (event.rank != 0 || event.lane != Lane::kChannel) continue;
    charges.emplace_back(result.trace.names()[event.name], event.duration);
  }
  return charges;
}

// Factors travel with the numbers of their examples, a message of several tensors pays per_tensor
// for each, and a layer with a bias has two gradients: all of it must be charged alike.
TEST(EmulatedLink, ChargesWhatTheSimulatorCharges) {
  constexpr int kWorld = 4;
  CostModel costs = support::affine_costs(kWorld, 0, 0, CubicInverse{.c0 = 1e-9});
  costs.all_reduce = CollectiveCost(Seconds(1), Seconds(0.125), Seconds(0.25));
  costs.reduce = CollectiveCost(Seconds(2), Seconds(0.25), Seconds(0.5));
  costs.broadcast = CollectiveCost(CostTable({{1, Seconds(1)}, {8, Seconds(2)}, {64, Seconds(32)}}),
                                   Seconds(0.5));
  costs.compute = ComputeRates{FlopsPerSecond(1e9), FlopsPerSecond(1e9), FlopsPerSecond(1e9)};
  for (const AlgorithmInfo& info : named_algorithms()) {
    SCOPED_TRACE(info.name);
    torch::manual_seed(3);
    torch::nn::Sequential net(torch::nn::Linear(5, 4), torch::nn::Tanh(),
                              torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false)),
                              torch::nn::Tanh(), torch::nn::Linear(3, 2));
    const auto link = std::make_shared<NotingLink>(kWorld, costs);
    std::pair<Plan, ModelSpec> followed;
    Distribution distribution;
    distribution.communicator = link;
    distribution.plans = CustomPlanner{
        [&](const ModelSpec& model, const RefreshIntervals& intervals, StepKind kind) {
          Plan plan = make_plan(model, costs, kWorld, info.options, intervals, kind);
          followed = {plan, model};
          return plan;
        },
        info.options.second_order()};
    Preconditioner kfac(*net, {.damping = 0.1}, distribution);
    for (int step = 0; step < 2; ++step) {
      link->charges.clear();
      net->zero_grad();
      net->forward(torch::ones({6, 5})).square().mean().backward();
      kfac.step(0.1);
    }
    const Charges expected = simulated_charges(followed.first, followed.second, costs);
    EXPECT_GT(expected.size(), 0U);
    ASSERT_EQ(link->charges.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(link->charges[i].first, expected[i].first);
      EXPECT_EQ(link->charges[i].second, expected[i].second) << expected[i].first;
    }
  }
}

}  // namespace
}  // namespace spdkfac::bench
