// SPDX-License-Identifier: Apache-2.0
// Timelines worked out by hand: gradient workers (KAISA), local factors (DP-KFAC), updates that are
// gathered (Shampoo, SOAP, Muon).
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/timeline_support.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/simulator.h"
#include "support/models.h"
#include "support/random.h"

namespace spdkfac {
namespace {

using namespace timeline;  // NOLINT(google-build-using-namespace)
using support::affine_costs;
using support::tiny_model;

//       d_A d_G   packed A, packed G, V    preconditioning 2·d_A·d_G·(d_A+d_G)/12
//   l0   3   2       6         3      6         5 s
//   l1   2   1       3         1      2         1 s
// Inverses take a second for each row: 3 + 2 and 2 + 1. Everything before them is free. Broadcasts
// on 4 ranks take 2 + 0.25·tensors + 0.75·m, on 2 ranks log 2/log 4 of the start-up and (1/2)/(3/4)
// of the rest: 1 + 0.25·tensors + 0.5·m.
ModelSpec free_passes() { return tiny_model({{3, 2}, {2, 1}}); }

CostModel worker_costs() {
  CostModel costs = affine_costs(4, 0, 0, one_second_per_row());
  costs.broadcast = CollectiveCost(Seconds(2), Seconds(0.75), Seconds(0.25));
  costs.compute = precondition_rate(12);
  return costs;
}

// Rank 0 owns l0, rank 3 owns l1. With two gradient workers the columns are {0, 2} and {1, 3}.
Plan worker_plan(const ModelSpec& model, std::optional<double> workers, Exchange exchange) {
  Plan plan = by_hand(model, 4, FactorSchedule::kPipelined,
                      {all_reduce({factor_a(0), gradient(0), factor_g(0)}, 15),
                       all_reduce({factor_a(1), gradient(1), factor_g(1)}, 6)},
                      {invert_a(0, 3, 0), invert_g(0, 2, 0), invert_a(1, 2, 3), invert_g(1, 1, 3)});
  plan.options.placement = PlacementKind::kLpt;
  plan.options.gradient_workers = workers;
  plan.options.exchange = exchange;
  return plan;
}

IterationResult simulated(std::optional<double> workers, Exchange exchange = Exchange::kInverse) {
  const ModelSpec model = free_passes();
  const Plan plan = worker_plan(model, workers, exchange);
  validate_against(plan, model, "by hand");
  return simulate(plan, model, worker_costs());
}

TEST(WorkerTimeline, ColumnsBroadcastInversesSideBySideAndPassVOnToTheirRows) {
  const IterationResult simulation = simulated(0.5);

  // Column {0, 2}: rank 0 inverts A_0 0-3; 6 elements on 2 ranks 4.25 s, 3-7.25; G_0 3-5; 3
  // elements 2.75 s behind it, 7.25-10. Column {1, 3} meanwhile: A_1 0-2, 3 elements 2-4.75; G_1
  // 2-3, 1 element 1.75 s, 4.75-6.5.
  // Both workers of l0 precondition it 10-15, those of l1 6.5-7.5. V_0 goes to both rows, 6
  // elements 4.25 s, 15-19.25; V_1, 2 elements 2.25 s, 19.25-21.5.
  EXPECT_EQ(compute(simulation, 0),
            Timeline({{kInverse, 0, 3}, {kInverse, 3, 5}, {kPrecondition, 10, 15}}));
  EXPECT_EQ(compute(simulation, 2), Timeline({{kPrecondition, 10, 15}}));
  EXPECT_EQ(compute(simulation, 1), Timeline({{kPrecondition, 6.5, 7.5}}));
  EXPECT_EQ(compute(simulation, 3),
            Timeline({{kInverse, 0, 2}, {kInverse, 2, 3}, {kPrecondition, 6.5, 7.5}}));
  for (const int rank : {0, 2}) {
    EXPECT_EQ(channel(simulation, rank), Timeline({{kInverseComm, 3, 7.25},
                                                   {kInverseComm, 7.25, 10},
                                                   {kInverseComm, 15, 19.25},
                                                   {kInverseComm, 19.25, 21.5}}));
  }
  for (const int rank : {1, 3}) {
    EXPECT_EQ(channel(simulation, rank), Timeline({{kInverseComm, 2, 4.75},
                                                   {kInverseComm, 4.75, 6.5},
                                                   {kInverseComm, 15, 19.25},
                                                   {kInverseComm, 19.25, 21.5}}));
  }
  EXPECT_EQ(simulation.iteration, Seconds(21.5));
  EXPECT_EQ(simulation.inverse_load,
            std::vector<Seconds>({Seconds(5), Seconds(0), Seconds(0), Seconds(3)}));
}

TEST(WorkerTimeline, AnOwnerAloneSendsOnlyV) {
  const IterationResult simulation = simulated(0);

  // Rank 0: inverses 0-5, l0 5-10; 6 elements on 4 ranks 6.75 s, 10-16.75. Rank 3: 0-3, l1 3-4; 2
  // elements 3.75 s, 16.75-20.5.
  EXPECT_EQ(compute(simulation, 0),
            Timeline({{kInverse, 0, 3}, {kInverse, 3, 5}, {kPrecondition, 5, 10}}));
  EXPECT_EQ(compute(simulation, 1), Timeline());
  EXPECT_EQ(channel(simulation),
            Timeline({{kInverseComm, 10, 16.75}, {kInverseComm, 16.75, 20.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(20.5));
}

TEST(WorkerTimeline, WithAllRanksAsWorkersOnlyInversesTravel) {
  const IterationResult simulation = simulated(1);

  // A_0 6.75 s, 3-9.75; G_0 4.5 s, 9.75-14.25; A_1 4.5 s, -18.75; G_1 3 s, -21.75. Then every rank
  // preconditions l0 and l1, 5 + 1 s.
  EXPECT_EQ(channel(simulation), Timeline({{kInverseComm, 3, 9.75},
                                           {kInverseComm, 9.75, 14.25},
                                           {kInverseComm, 14.25, 18.75},
                                           {kInverseComm, 18.75, 21.75}}));
  EXPECT_EQ(compute(simulation, 1),
            Timeline({{kPrecondition, 21.75, 26.75}, {kPrecondition, 26.75, 27.75}}));
  EXPECT_EQ(simulation.iteration, Seconds(27.75));
}

TEST(WorkerTimeline, GatheringSendsAllVInOneMessage) {
  const IterationResult simulation = simulated(std::nullopt, Exchange::kGather);

  // Rank 0 is done at 10, rank 3 at 4: 8 elements in 2 tensors 2 + 0.5 + 6 = 8.5 s, 10-18.5.
  EXPECT_EQ(compute(simulation, 3),
            Timeline({{kInverse, 0, 2}, {kInverse, 2, 3}, {kPrecondition, 3, 4}}));
  EXPECT_EQ(channel(simulation), Timeline({{kInverseComm, 10, 18.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(18.5));
}

// Ranks of a column that own nothing do the same, so what is simulated without a trace, with fewer
// streams, takes as long.
TEST(WorkerTimeline, IsTheSameWithoutATrace) {
  support::Random random(5);
  for (int i = 0; i < 20; ++i) {
    const ModelSpec model = support::random_model(random, 6);
    CostModel costs = affine_costs(8, random.real(0, 1), random.real(0, 0.1), one_second_per_row());
    costs.compute = precondition_rate(100);
    costs.overheads.compute_rate_under_communication = random.real(0.5, 1);
    costs.overheads.communication_rate_under_computation = random.real(0.5, 1);
    for (const AlgorithmInfo& info : other_methods()) {
      for (const StepKind step : {StepKind::kFull, StepKind::kFactors, StepKind::kGradients}) {
        const Plan plan = make_plan(model, costs, 8, info.options, {}, step);
        const IterationResult traced = simulate(plan, model, costs);
        EXPECT_EQ(traced.iteration, simulate(plan, model, costs, {.trace = false}).iteration)
            << info.name;
        EXPECT_EQ(traced.iteration, traced.trace.iteration()) << info.name;
      }
    }
  }
}

// The layers of timeline_support.h on two ranks: rank 0 makes and inverts the factors of l0, rank 1
// those of l1. An all-reduce takes 1 + m/2, a broadcast too.
Plan local_plan(const ModelSpec& model, StepKind step) {
  Plan plan =
      by_hand(model, 2, FactorSchedule::kBulk, {all_reduce({gradient(1), gradient(0)}, 8)},
              {invert_a(0, 3, 0), invert_g(0, 2, 0), invert_a(1, 2, 1), invert_g(1, 1, 1)}, step);
  plan.options.placement = PlacementKind::kSequential;
  plan.options.factor_reduce = FactorReduce::kLocal;
  plan.options.gradient_workers = 0;
  validate_against(plan, model, "by hand");
  return plan;
}

TEST(LocalTimeline, EachOwnerMakesItsOwnFactorsWhenGradientsHaveArrived) {
  const ModelSpec model = two_layers();
  CostModel costs = affine_costs(2, 1, 0.5, one_second_per_row());
  costs.compute = precondition_rate(12);
  // Factors neither travel nor are packed.
  costs.overheads.pack_per_element = Seconds(100);

  const IterationResult full = simulate(local_plan(model, StepKind::kFull), model, costs);

  // Passes 1 + 2 + 3 + 2 = 8. Gradients, 8 elements 5 s, 8-13. Rank 0: A_0 13-14, G_0 -16, inverts
  // -19 and -21, preconditions l0 -26. Rank 1: A_1 13-17, G_1 -18, inverts -20 and -21, l1 -22.
  // V_0, 6 elements 4 s, 26-30; V_1, 2 elements 2 s, 30-32.
  EXPECT_EQ(from(8, compute(full, 0)), Timeline({{kFactor, 13, 14},
                                                 {kFactor, 14, 16},
                                                 {kInverse, 16, 19},
                                                 {kInverse, 19, 21},
                                                 {kPrecondition, 21, 26}}));
  EXPECT_EQ(from(8, compute(full, 1)), Timeline({{kFactor, 13, 17},
                                                 {kFactor, 17, 18},
                                                 {kInverse, 18, 20},
                                                 {kInverse, 20, 21},
                                                 {kPrecondition, 21, 22}}));
  EXPECT_EQ(channel(full),
            Timeline({{kGradComm, 8, 13}, {kInverseComm, 26, 30}, {kInverseComm, 30, 32}}));
  EXPECT_EQ(full.iteration, Seconds(32));

  // Without inversions: l0 16-21, V_0 -25, V_1 -27. Without factors: l0 13-18, V_0 -22, V_1 -24.
  EXPECT_EQ(simulate(local_plan(model, StepKind::kFactors), model, costs).iteration, Seconds(27));
  EXPECT_EQ(simulate(local_plan(model, StepKind::kGradients), model, costs).iteration, Seconds(24));
}

// Muon has neither statistics nor inverses. Updates of l0 and l1 take 5·(4·3·2² + 2·2³)/12 = 80/3
// and 5·(4·2·1 + 2)/12 = 25/6 s; passes and gradients as above, 8 and 5 s.
TEST(LocalTimeline, OfMuonIsTheUpdateAlone) {
  const ModelSpec model = two_layers();
  CostModel costs = affine_costs(2, 1, 0.5, one_second_per_row());
  costs.compute = precondition_rate(12);
  Plan plan = local_plan(model, StepKind::kFull);
  plan.options.method = Method::kMuon;
  plan.options.gradient_workers.reset();
  plan.options.exchange = Exchange::kGather;

  const IterationResult simulation = simulate(plan, model, costs);

  // Rank 0: 13 + 80/3; then 8 elements in one message, 1 + 4 s.
  EXPECT_EQ(from(8, compute(simulation, 0)).size(), 1U);
  EXPECT_NEAR(from(8, compute(simulation, 1)).front().end, 13 + 25.0 / 6, 1e-12);
  EXPECT_NEAR(simulation.iteration.value(), 13 + 80.0 / 3 + 5, 1e-12);
  EXPECT_EQ(simulation.inverse_load, std::vector<Seconds>(2));
}

// What a rank sends on average, from the elements of the model alone: w gradient workers of P
// ranks.
TEST(WorkerBytes, FollowTheFormula) {
  support::Random random(29);
  for (int i = 0; i < 20; ++i) {
    const ModelSpec model =
        support::random_model(random, static_cast<std::size_t>(random.integer(1, 9)));
    double gradients = 0;
    double factors = 0;
    double preconditioned = 0;
    for (const LayerSpec& layer : model.layers) {
      for (const std::int64_t elements : layer.gradients)
        gradients += static_cast<double>(elements);
      preconditioned += static_cast<double>(layer.groups * layer.d_a * layer.d_g);
      for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
        factors += static_cast<double>(layer.shape(side).packed());
      }
    }
    const double counts = 2 * static_cast<double>(model.layers.size());
    for (const int world : {2, 4, 12}) {
      CostModel costs = affine_costs(world, 1, 0.5, one_second_per_row());
      costs.compute = precondition_rate(10);
      const double p = world;
      const auto bytes = [&](const char* name) {
        return bytes_per_worker(make_plan(model, costs, world, preset(name)), model);
      };
      const auto kaisa = [&](double w) {
        return 4 * (2 * (p - 1) / p * (gradients + factors + counts) + (w - 1) / p * factors +
                    (1 - w / p) * preconditioned);
      };
      EXPECT_NEAR(bytes("kaisa-mem"), kaisa(1), 1e-6);
      EXPECT_NEAR(bytes("kaisa-hybrid"), kaisa(p / 2), 1e-6);
      EXPECT_NEAR(bytes("kaisa-comm"), kaisa(p), 1e-6);
      const double local = 4 * (p - 1) / p * (2 * gradients + preconditioned);
      for (const char* name : {"dp-kfac", "shampoo", "soap", "muon"}) {
        EXPECT_NEAR(bytes(name), local, 1e-6) << name;
      }
    }
  }
}

}  // namespace
}  // namespace spdkfac
