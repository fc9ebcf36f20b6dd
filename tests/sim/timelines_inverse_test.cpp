// SPDX-License-Identifier: Apache-2.0
// Timelines worked out by hand: owners that send inverses or gradients, and what hooks, packing and
// unpacking cost. All numbers are sums of powers of two, so that comparisons are exact.
#include <gtest/gtest.h>

#include "sim/timeline_support.h"
#include "spdkfac/sim/simulator.h"
#include "support/models.h"

namespace spdkfac {
namespace {

using namespace timeline;  // NOLINT(google-build-using-namespace)
using support::affine_costs;
using support::layer_times;
using support::tiny_model;

// Broadcasts 1 + m/2 seconds, inverses of d rows d seconds. What comes before the inverse stage is
// free, so that it starts at 0.
CostModel inverse_stage_costs(int world) {
  CostModel costs = affine_costs(world, 1, 0.5, one_second_per_row());
  costs.all_reduce = costs.reduce = CollectiveCost();
  return costs;
}

// The tensors of one layer in one all-reduce.
Message whole_layer(const ModelSpec& model, int layer) {
  const LayerSpec& spec = model.layers.at(static_cast<std::size_t>(layer));
  return all_reduce(
      {factor_a(layer), gradient(layer), factor_g(layer)},
      packed_elements(spec.d_a) + spec.gradient_elements() + packed_elements(spec.d_g));
}

// One layer, d_A = 4 (10 packed elements) and d_G = 2 (3), without times.
ModelSpec one_layer() { return tiny_model({{4, 2}}); }

// Rank 0 inverts A_0 in 4 s, rank 1 inverts G_0 in 2 s; broadcasts take 6 and 2.5 s.
Plan two_owners(const ModelSpec& model) {
  return by_hand(model, 2, FactorSchedule::kBulk, {whole_layer(model, 0)},
                 {invert_a(0, 4, 0), invert_g(0, 2, 1)});
}

TEST(InverseTimeline, InverseThatIsDoneFirstWaitsForTheOneBeforeItInThePlan) {
  const ModelSpec model = one_layer();
  CostModel costs = inverse_stage_costs(2);
  costs.compute = precondition_rate(32);

  const IterationResult simulation = simulate(two_owners(model), model, costs);

  // A_0 0-4 on rank 0, G_0 0-2 on rank 1. Broadcast A_0 4-10, then G_0, done at 2: 10-12.5.
  // Nobody preconditions (2·4·2·6/32 = 3 s) before all have arrived.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kInverse, 0, 4}, {kPrecondition, 12.5, 15.5}}));
  EXPECT_EQ(compute(simulation, 1), Timeline({{kInverse, 0, 2}, {kPrecondition, 12.5, 15.5}}));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(channel(simulation, rank),
              Timeline({{kInverseComm, 4, 10}, {kInverseComm, 10, 12.5}}));
  }
  EXPECT_EQ(simulation.iteration, Seconds(15.5));
  EXPECT_EQ(simulation.inverse_load, std::vector<Seconds>({Seconds(4), Seconds(2)}));
}

TEST(InverseTimeline, MeasuredInversesTakeTheirOwnTime) {
  ModelSpec model = one_layer();
  model.layers[0].times->inverse_a = Seconds(0.5);

  const IterationResult simulation = simulate(two_owners(model), model, inverse_stage_costs(2));

  // A_0 0-0.5 as measured, G_0 0-2 by its dimension. Broadcast A_0 0.5-6.5, then G_0 6.5-9.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kInverse, 0, 0.5}}));
  EXPECT_EQ(compute(simulation, 1), Timeline({{kInverse, 0, 2}}));
  EXPECT_EQ(simulation.iteration, Seconds(9));
}

TEST(InverseTimeline, EachWorkerUnpacksWhatItDoesNotOwnWhenItArrives) {
  const ModelSpec model = one_layer();
  CostModel costs = inverse_stage_costs(2);
  costs.compute = precondition_rate(32);
  costs.overheads.unpack_per_element = Seconds(0.25);

  const IterationResult simulation = simulate(two_owners(model), model, costs);

  // Both unpack A_0 0-2.5 and G_0 2.5-3.25 after the all-reduce. A_0 3.25-7.25 on rank 0, G_0
  // 3.25-5.25 on rank 1; broadcasts 7.25-13.25 and 13.25-15.75. Rank 1 unpacks A_0 13.25-15.75,
  // rank 0 unpacks G_0 15.75-16.5. Each then preconditions, 3 s.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kFactor, 0, 2.5},
                                              {kFactor, 2.5, 3.25},
                                              {kInverse, 3.25, 7.25},
                                              {kInverse, 15.75, 16.5},
                                              {kPrecondition, 16.5, 19.5}}));
  EXPECT_EQ(compute(simulation, 1), Timeline({{kFactor, 0, 2.5},
                                              {kFactor, 2.5, 3.25},
                                              {kInverse, 3.25, 5.25},
                                              {kInverse, 13.25, 15.75},
                                              {kPrecondition, 15.75, 18.75}}));
  EXPECT_EQ(simulation.iteration, Seconds(19.5));
  EXPECT_EQ(simulation.inverse_load, std::vector<Seconds>({Seconds(4), Seconds(2)}));
}

TEST(InverseTimeline, SlowOwnerDelaysTheBroadcastsBehindItsInverse) {
  const ModelSpec model = one_layer();
  const IterationResult simulation =
      simulate(two_owners(model), model, inverse_stage_costs(2), {.slow = {{0, 2.0}}});

  // A_0 takes 8 s on rank 0; broadcasts 8-14, 14-16.5.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kInverse, 0, 8}}));
  EXPECT_EQ(channel(simulation), Timeline({{kInverseComm, 8, 14}, {kInverseComm, 14, 16.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(16.5));
}

TEST(InverseTimeline, InversionAndUnpackingAreSlowerUnderABroadcast) {
  const ModelSpec model = tiny_model({{2, 4}});  // packed: A_0 3, G_0 10
  CostModel costs = inverse_stage_costs(2);
  costs.overheads.unpack_per_element = Seconds(0.25);
  costs.overheads.compute_rate_under_communication = 0.5;
  const Plan plan = by_hand(model, 2, FactorSchedule::kBulk, {whole_layer(model, 0)},
                            {invert_a(0, 2, 0), invert_g(0, 4, 1)});

  const IterationResult simulation = simulate(plan, model, costs);

  // Unpacking A_0 0-0.75, G_0 0.75-3.25. Rank 0: A_0 3.25-5.25; broadcast 2.5 s, 5.25-7.75.
  // Rank 1: G_0, 4 s: 2 by 5.25, 1.25 more by 7.75, 0.75 left: 3.25-8.5; broadcast 6 s, 8.5-14.5.
  // Rank 1 unpacks A_0, 0.75 s at half speed: 8.5-10. Rank 0 unpacks G_0 14.5-17.
  EXPECT_EQ(from(3.25, compute(simulation, 0)),
            Timeline({{kInverse, 3.25, 5.25}, {kInverse, 14.5, 17}}));
  EXPECT_EQ(from(3.25, compute(simulation, 1)),
            Timeline({{kInverse, 3.25, 8.5}, {kInverse, 8.5, 10}}));
  EXPECT_EQ(channel(simulation), Timeline({{kInverseComm, 5.25, 7.75}, {kInverseComm, 8.5, 14.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(17));
}

TEST(InverseTimeline, BroadcastIsSlowerBesideInversions) {
  const ModelSpec model = tiny_model({{2, 4}});  // packed: A_0 3, G_0 10
  CostModel costs = inverse_stage_costs(2);
  costs.overheads.compute_rate_under_communication = 0.5;
  costs.overheads.communication_rate_under_computation = 0.5;
  const Plan plan = by_hand(model, 2, FactorSchedule::kBulk, {whole_layer(model, 0)},
                            {invert_a(0, 2, 0), invert_g(0, 4, 1)});

  const IterationResult simulation = simulate(plan, model, costs);

  // Rank 0: A_0 0-2. Rank 1: G_0, 4 s: 2 by 2, then 2 at half speed: 0-6. The broadcast of A_0,
  // 2.5 s: 2 are done by 6, 0.5 are left: 2-6.5. That of G_0 6 s: 6.5-12.5.
  EXPECT_EQ(compute(simulation, 1), Timeline({{kInverse, 0, 6}}));
  EXPECT_EQ(channel(simulation), Timeline({{kInverseComm, 2, 6.5}, {kInverseComm, 6.5, 12.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(12.5));
}

// Two layers; packed A_0 10, G_0 3, A_1 3, G_1 1; dealt out in turn to two workers.
Plan dealt_out(const ModelSpec& model, PlacementKind placement) {
  Plan plan =
      by_hand(model, 2, FactorSchedule::kBulk, {whole_layer(model, 1), whole_layer(model, 0)},
              {invert_a(0, 4, 0), invert_g(0, 2, 1), invert_a(1, 2, 0), invert_g(1, 1, 1)});
  plan.options.placement = placement;
  return plan;
}

TEST(InverseTimeline, SequentialPlacementInvertsEverythingBeforeItSends) {
  const ModelSpec model = tiny_model({{4, 2}, {2, 1}});
  CostModel costs = inverse_stage_costs(2);
  costs.overheads.pack_per_element = Seconds(0.25);

  const IterationResult simulation =
      simulate(dealt_out(model, PlacementKind::kSequential), model, costs);

  // Rank 0: A_0 0-4, A_1 4-6, then packing 2.5, 0.75, 0.75, 0.25. Rank 1: G_0 0-2, G_1 2-3, then
  // the same packing. Broadcasts when rank 0 has packed: A_0 6 s, 8.5-14.5; G_0 2.5 s -17; A_1
  // 2.5 s -19.5; G_1 1.5 s -21.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kInverse, 0, 4},
                                              {kInverse, 4, 6},
                                              {kInverse, 6, 8.5},
                                              {kInverse, 8.5, 9.25},
                                              {kInverse, 9.25, 10},
                                              {kInverse, 10, 10.25}}));
  EXPECT_EQ(compute(simulation, 1), Timeline({{kInverse, 0, 2},
                                              {kInverse, 2, 3},
                                              {kInverse, 3, 5.5},
                                              {kInverse, 5.5, 6.25},
                                              {kInverse, 6.25, 7},
                                              {kInverse, 7, 7.25}}));
  EXPECT_EQ(channel(simulation), Timeline({{kInverseComm, 8.5, 14.5},
                                           {kInverseComm, 14.5, 17},
                                           {kInverseComm, 17, 19.5},
                                           {kInverseComm, 19.5, 21}}));
  EXPECT_EQ(simulation.iteration, Seconds(21));
  // Packing is not inverting.
  EXPECT_EQ(simulation.inverse_load, std::vector<Seconds>({Seconds(6), Seconds(3)}));
}

TEST(InverseTimeline, OtherPlacementsSendEachInverseWhenAllHaveComeToIt) {
  const ModelSpec model = tiny_model({{4, 2}, {2, 1}});
  CostModel costs = inverse_stage_costs(2);
  costs.overheads.pack_per_element = Seconds(0.25);

  const IterationResult simulation =
      simulate(dealt_out(model, PlacementKind::kBalanced), model, costs);

  // Rank 0: A_0 0-4, packs A_0 -6.5, packs G_0 -7.25, A_1 7.25-9.25, packs A_1 -10, G_1 -10.25.
  // Rank 1: packs A_0 0-2.5, G_0 2.5-4.5, packs G_0 -5.25, packs A_1 -6, G_1 6-7, packs it -7.25.
  // Broadcasts: A_0 6.5-12.5, then G_0 -15, A_1 -17.5, G_1 -19 without a gap.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kInverse, 0, 4},
                                              {kInverse, 4, 6.5},
                                              {kInverse, 6.5, 7.25},
                                              {kInverse, 7.25, 9.25},
                                              {kInverse, 9.25, 10},
                                              {kInverse, 10, 10.25}}));
  EXPECT_EQ(compute(simulation, 1), Timeline({{kInverse, 0, 2.5},
                                              {kInverse, 2.5, 4.5},
                                              {kInverse, 4.5, 5.25},
                                              {kInverse, 5.25, 6},
                                              {kInverse, 6, 7},
                                              {kInverse, 7, 7.25}}));
  EXPECT_EQ(channel(simulation), Timeline({{kInverseComm, 6.5, 12.5},
                                           {kInverseComm, 12.5, 15},
                                           {kInverseComm, 15, 17.5},
                                           {kInverseComm, 17.5, 19}}));
  EXPECT_EQ(simulation.iteration, Seconds(19));
}

// d_A = 3 (6 packed), d_G = 2 (3 packed); forward 1, backward 2, A 1, G 1 s; 60 flops to
// precondition.
ModelSpec timed_layer() { return tiny_model({{3, 2}}, layer_times(1, 2, 1, 1)); }

TEST(InverseTimeline, HooksPackingAndUnpackingCostTimeOnEveryWorker) {
  ModelSpec model = timed_layer();
  model.layers[0].gradients = {6, 2};
  CostModel costs = affine_costs(2, 0, 0, one_second_per_row());
  costs.all_reduce = costs.broadcast = CollectiveCost(Seconds(1), Seconds(0.5), Seconds(0.25));
  costs.compute = precondition_rate(16);
  costs.overheads = {Seconds(0.5), Seconds(0.25), Seconds(0.125), 1};
  const Plan plan = by_hand(
      model, 2, FactorSchedule::kPipelined,
      {all_reduce({factor_a(0)}, 6), all_reduce({gradient(0)}, 8), all_reduce({factor_g(0)}, 3)},
      {invert_a(0, 3, 1), invert_g(0, 2, kEveryone)});

  const IterationResult simulation = simulate(plan, model, costs);

  // A_0 1 + 0.5 + 6/4 = 3: 0-3. F_0 3-4. B_0 2 + 2·0.5 = 3: 4-7. G_0 1 + 0.5 + 3/4 = 2.25: -9.25.
  // Messages: A_0 1 + 3 + 0.25 = 4.25, 3-7.25; gradient 1 + 4 + 2/4 = 5.5, -12.75; G_0
  // 1 + 1.5 + 0.25 = 2.75, -15.5. Unpacking 0.5 + 6/8 = 1.25 and 0.5 + 3/8 = 0.875: 17.625.
  // Rank 1 inverts A_0 17.625-20.625 and packs it (2 s) -22.625, then G_0 -24.625.
  // Rank 0 takes its part in the packing 17.625-19.625, then G_0 -21.625.
  // Broadcast 22.625-26.875. Rank 0 unpacks, 1.25 s: 28.125. Preconditioning 60/16 = 3.75.
  const Timeline shared = {{kFactor, 0, 3},    {kPass, 3, 4},          {kPass, 4, 7},
                           {kFactor, 7, 9.25}, {kFactor, 15.5, 16.75}, {kFactor, 16.75, 17.625}};
  Timeline rank0 = shared;
  rank0.insert(rank0.end(), {{kInverse, 17.625, 19.625},
                             {kInverse, 19.625, 21.625},
                             {kInverse, 26.875, 28.125},
                             {kPrecondition, 28.125, 31.875}});
  Timeline rank1 = shared;
  rank1.insert(rank1.end(), {{kInverse, 17.625, 20.625},
                             {kInverse, 20.625, 22.625},
                             {kInverse, 22.625, 24.625},
                             {kPrecondition, 26.875, 30.625}});
  EXPECT_EQ(compute(simulation, 0), rank0);
  EXPECT_EQ(compute(simulation, 1), rank1);
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 3, 7.25},
                                           {kGradComm, 7.25, 12.75},
                                           {kFactorComm, 12.75, 15.5},
                                           {kInverseComm, 22.625, 26.875}}));
  EXPECT_EQ(simulation.iteration, Seconds(31.875));
  EXPECT_EQ(simulation.inverse_load, std::vector<Seconds>({Seconds(2), Seconds(5)}));
}

TEST(InverseTimeline, BulkFactorsHaveNoHooksButAreUnpacked) {
  const ModelSpec model = timed_layer();
  CostModel costs = affine_costs(2, 1, 0.5, one_second_per_row());
  costs.overheads = {Seconds(0.5), Seconds(0.25), Seconds(0.125), 1};
  const Plan plan = by_hand(
      model, 2, FactorSchedule::kBulk,
      {all_reduce({gradient(0)}, 6), all_reduce({factor_a(0), factor_g(0)}, 9)}, replicated(model));

  const IterationResult simulation = simulate(plan, model, costs);

  // F_0 0-1, B_0 2.5 s -3.5, gradient 4 s -7.5. A_0 7.5-8.5, G_0 8.5-9.5, message 5.5 s -15.
  // Unpacking 1.25 and 0.875: 17.125. Inverses 3 and 2.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kPass, 0, 1},
                                              {kPass, 1, 3.5},
                                              {kFactor, 7.5, 8.5},
                                              {kFactor, 8.5, 9.5},
                                              {kFactor, 15, 16.25},
                                              {kFactor, 16.25, 17.125},
                                              {kInverse, 17.125, 20.125},
                                              {kInverse, 20.125, 22.125}}));
  EXPECT_EQ(simulation.iteration, Seconds(22.125));
}

TEST(InverseTimeline, PartsOfAStepAreAsSlowAsEachRankIs) {
  const ModelSpec model = timed_layer();
  CostModel costs = affine_costs(2, 1, 0.5, one_second_per_row());
  costs.compute = precondition_rate(16);
  const Plan plan =
      by_hand(model, 2, FactorSchedule::kPipelined,
              {all_reduce({factor_a(0), gradient(0), factor_g(0)}, 15)}, replicated(model));

  const IterationResult simulation =
      simulate(plan, model, costs, {.slow_parts = {{1, 2, 1}, {2, 1, 4}}});

  // Rank 1 has its passes and factors at 10 instead of 5. Message 8.5 s, 10-18.5. Inverses of 3 and
  // 2 s take rank 0 twice as long, preconditioning of 3.75 s takes rank 1 four times as long.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kFactor, 0, 1},
                                              {kPass, 1, 2},
                                              {kPass, 2, 4},
                                              {kFactor, 4, 5},
                                              {kInverse, 18.5, 24.5},
                                              {kInverse, 24.5, 28.5},
                                              {kPrecondition, 28.5, 32.25}}));
  EXPECT_EQ(compute(simulation, 1), Timeline({{kFactor, 0, 2},
                                              {kPass, 2, 4},
                                              {kPass, 4, 8},
                                              {kFactor, 8, 10},
                                              {kInverse, 18.5, 21.5},
                                              {kInverse, 21.5, 23.5},
                                              {kPrecondition, 23.5, 38.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(38.5));
  EXPECT_EQ(simulation.inverse_load, std::vector<Seconds>({Seconds(10), Seconds(5)}));
}

TEST(InverseTimeline, StepWithoutNewInversesUnpacksFactorsAndSendsNoInverse) {
  const ModelSpec model = timed_layer();
  CostModel costs = affine_costs(2, 1, 0.5, one_second_per_row());
  costs.compute = precondition_rate(16);
  costs.overheads.unpack_per_element = Seconds(0.5);
  const Plan plan = by_hand(model, 2, FactorSchedule::kPipelined,
                            {all_reduce({factor_a(0), gradient(0), factor_g(0)}, 15)},
                            {invert_a(0, 3, 0), invert_g(0, 2, 1)}, StepKind::kFactors);

  const IterationResult simulation = simulate(plan, model, costs);

  // A_0 0-1, F_0 -2, B_0 -4, G_0 -5. Message 8.5 s -13.5. Unpacking 3 and 1.5 s: 18. Both
  // precondition with the inverses they have, 3.75 s.
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(from(5, compute(simulation, rank)),
              Timeline({{kFactor, 13.5, 16.5}, {kFactor, 16.5, 18}, {kPrecondition, 18, 21.75}}));
  }
  EXPECT_EQ(channel(simulation).size(), 1U);
  EXPECT_EQ(simulation.iteration, Seconds(21.75));
}

// Of `timed_layer`: A_0 goes to rank 0, G_0 to rank 1.
Plan reduced_to_owners(const ModelSpec& model) {
  return by_hand(model, 2, FactorSchedule::kPipelined,
                 {reduce_to(0, {factor_a(0)}, 6), all_reduce({gradient(0)}, 6),
                  reduce_to(1, {factor_g(0)}, 3), all_reduce({diagonal_means(0)}, 2)},
                 {invert_a(0, 3, 0), invert_g(0, 2, 1)});
}

// Unpacking takes 3 s of A_0 and 1.5 s of G_0.
CostModel reducing_costs() {
  CostModel costs = affine_costs(2, 1, 0.5, one_second_per_row());
  costs.reduce = CollectiveCost(Seconds(1), Seconds(0.25));
  costs.overheads.unpack_per_element = Seconds(0.5);
  return costs;
}

TEST(InverseTimeline, TracesTravelAfterTheLastOwnerHasUnpacked) {
  const ModelSpec model = timed_layer();

  const IterationResult simulation = simulate(reduced_to_owners(model), model, reducing_costs());

  // A_0 0-1, F_0 1-2, B_0 2-4, G_0 4-5. Reduce A_0 2.5 s, 1-3.5; all-reduce 4 s, 4-8; reduce G_0
  // 1.75 s, 8-9.75. Rank 0 unpacks A_0 9.75-12.75, rank 1 only G_0 9.75-11.25. Traces 2 s,
  // 12.75-14.75. A_0 14.75-17.75, broadcast 4 s -21.75; G_0 14.75-16.75, broadcast 2.5 s -24.25.
  // Unpacking: rank 1 A_0 21.75-24.75, rank 0 G_0 24.25-25.75.
  EXPECT_EQ(from(5, compute(simulation, 0)),
            Timeline({{kFactor, 9.75, 12.75}, {kInverse, 14.75, 17.75}, {kInverse, 24.25, 25.75}}));
  EXPECT_EQ(from(5, compute(simulation, 1)),
            Timeline({{kFactor, 9.75, 11.25}, {kInverse, 14.75, 16.75}, {kInverse, 21.75, 24.75}}));
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 1, 3.5},
                                           {kGradComm, 4, 8},
                                           {kFactorComm, 8, 9.75},
                                           {kFactorComm, 12.75, 14.75},
                                           {kInverseComm, 17.75, 21.75},
                                           {kInverseComm, 21.75, 24.25}}));
  EXPECT_EQ(simulation.iteration, Seconds(25.75));
}

TEST(InverseTimeline, OwnersUnpackFactorsOnArrival) {
  const ModelSpec model = timed_layer();
  CostModel costs = reducing_costs();
  costs.overheads.unpack_on_arrival = true;

  const IterationResult simulation = simulate(reduced_to_owners(model), model, costs);

  // Messages of the passes as above, 1-3.5, 4-8, 8-9.75. Rank 0 unpacks A_0 when G_0 is computed,
  // 5-8, rank 1 G_0 when it has arrived, 9.75-11.25. Traces 2 s, -13.25. A_0 13.25-16.25, broadcast
  // 4 s -20.25; G_0 13.25-15.25, broadcast 2.5 s -22.75. Unpacking: rank 1 A_0 20.25-23.25, rank 0
  // G_0 22.75-24.25.
  EXPECT_EQ(from(5, compute(simulation, 0)),
            Timeline({{kFactor, 5, 8}, {kInverse, 13.25, 16.25}, {kInverse, 22.75, 24.25}}));
  EXPECT_EQ(from(5, compute(simulation, 1)),
            Timeline({{kFactor, 9.75, 11.25}, {kInverse, 13.25, 15.25}, {kInverse, 20.25, 23.25}}));
  EXPECT_EQ(from(9.75, channel(simulation)), Timeline({{kFactorComm, 11.25, 13.25},
                                                       {kInverseComm, 16.25, 20.25},
                                                       {kInverseComm, 20.25, 22.75}}));
  EXPECT_EQ(simulation.iteration, Seconds(24.25));
}

TEST(InverseTimeline, UnpackingIsSlowerBesideTheMessagesBehind) {
  const ModelSpec model = timed_layer();
  CostModel costs = reducing_costs();
  costs.overheads.unpack_on_arrival = true;
  costs.overheads.compute_rate_under_communication = 0.5;
  const Plan plan = by_hand(
      model, 2, FactorSchedule::kPipelined,
      {all_reduce({factor_a(0)}, 6), all_reduce({gradient(0)}, 6), all_reduce({factor_g(0)}, 3)},
      replicated(model));

  const IterationResult simulation = simulate(plan, model, costs);

  // A_0 0-1, its message 4 s 1-5. F_0 at half speed 1-3, B_0 2 s: 1 by 5, 1 more: 3-6. Gradient
  // 4 s, 6-10; G_0 at half speed 6-8; its message 2.5 s, 10-12.5. Unpacking A_0, 3 s from 8 on:
  // 2.25 by 12.5, 0.75 more: -13.25; G_0 -14.75. Inverses 3 and 2.
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(compute(simulation, rank), Timeline({{kFactor, 0, 1},
                                                   {kPass, 1, 3},
                                                   {kPass, 3, 6},
                                                   {kFactor, 6, 8},
                                                   {kFactor, 8, 13.25},
                                                   {kFactor, 13.25, 14.75},
                                                   {kInverse, 14.75, 17.75},
                                                   {kInverse, 17.75, 19.75}}));
  }
  EXPECT_EQ(channel(simulation),
            Timeline({{kFactorComm, 1, 5}, {kGradComm, 6, 10}, {kFactorComm, 10, 12.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(19.75));
}

}  // namespace
}  // namespace spdkfac
