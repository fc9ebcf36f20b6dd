// SPDX-License-Identifier: Apache-2.0
// Timelines worked out by hand: owners that precondition their layers and send the gradients.
#include <utility>
#include <vector>

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

// Forward 1, backward 2, A 1, G 1 s for each layer; preconditioning at 8 flops per second.
//       d_A d_G   packed A, packed G, gradient    preconditioning 2·d_A·d_G·(d_A+d_G)/8
//   l0   3   2       6         3         6            7.5 s
//   l1   2   1       3         1         2            1.5 s
//   l2   3   1       6         1       3 + 1          3 s
// The second gradient tensor of l2 belongs to a module without factors behind it.
ModelSpec three_layers() {
  ModelSpec model = tiny_model({{3, 2}, {2, 1}, {3, 1}}, layer_times(1, 2, 1, 1));
  model.layers[2].gradients = {3, 1};
  return model;
}

// ⟨V, ∇W⟩ adds 2 elements for each layer to a broadcast of gradients.
// Reduce 1 + m/4, broadcast 1 + tensors/4 + m/2; an all-reduce would cost 100 s.
CostModel owner_costs() {
  CostModel costs = affine_costs(2, 100, 0, one_second_per_row());
  costs.reduce = CollectiveCost(Seconds(1), Seconds(0.25));
  costs.broadcast = CollectiveCost(Seconds(1), Seconds(0.5), Seconds(0.25));
  costs.compute = precondition_rate(8);
  return costs;
}

// Rank 0 owns l0 and l1, rank 1 owns l2.
Plan owner_plan(const ModelSpec& model, StepKind step) {
  std::vector<Message> messages = {
      reduce_to(0, {factor_a(0), factor_a(1)}, 9), reduce_to(1, {factor_a(2)}, 6),
      reduce_to(1, {factor_g(2), gradient(2)}, 5), reduce_to(0, {factor_g(1), factor_g(0)}, 4),
      reduce_to(0, {gradient(1), gradient(0)}, 8)};
  if (step == StepKind::kGradients) {
    messages = {reduce_to(1, {gradient(2)}, 4), reduce_to(0, {gradient(1), gradient(0)}, 8)};
  }
  Plan plan = by_hand(model, 2, FactorSchedule::kPipelined, messages,
                      layers_owned(model, {{0, 0}, {1, 0}, {2, 1}}), step);
  plan.options.exchange = Exchange::kGradient;
  return plan;
}

void expect_channel_times(const IterationResult& simulation,
                          const std::vector<std::pair<double, double>>& expected) {
  std::vector<std::pair<double, double>> found;
  for (const Slot& slot : channel(simulation)) found.emplace_back(slot.start, slot.end);
  EXPECT_EQ(found, expected);
}

TEST(OwnerTimeline, LayersOfOneOwnerShareTheBroadcastOfTheirGradients) {
  const ModelSpec model = three_layers();
  const IterationResult simulation =
      simulate(owner_plan(model, StepKind::kFull), model, owner_costs());

  // A_0 0-1, F_0 -2, A_1 -3, F_1 -4, A_2 -5, F_2 -6, B_2 -8, G_2 -9, B_1 -11, G_1 -12, B_0 -14,
  // G_0 -15. Reduces: 9 elements 3.25 s at 3, 3-6.25; 6 elements 2.5 s, 6.25-8.75; 5 elements
  // 2.25 s at 9, 9-11.25; 4 elements 2 s at 15, 15-17; 8 elements 3 s, 17-20.
  // Rank 0: A_0 20-23, G_0 -25, A_1 -27, G_1 -28; preconditions l0 -35.5 and l1 -37. Broadcast of
  // 8 + 4 elements in 2 tensors, 1 + 0.5 + 6 = 7.5: 37-44.5.
  // Rank 1: A_2 20-23, G_2 -24, preconditions l2 -27. Broadcast of 4 + 2 elements in 2 tensors,
  // 1 + 0.5 + 3 = 4.5, behind the first: 44.5-49. Nothing is left to precondition.
  EXPECT_EQ(from(20, compute(simulation, 0)), Timeline({{kInverse, 20, 23},
                                                        {kInverse, 23, 25},
                                                        {kInverse, 25, 27},
                                                        {kInverse, 27, 28},
                                                        {kPrecondition, 28, 35.5},
                                                        {kPrecondition, 35.5, 37}}));
  EXPECT_EQ(from(20, compute(simulation, 1)),
            Timeline({{kInverse, 20, 23}, {kInverse, 23, 24}, {kPrecondition, 24, 27}}));
  expect_channel_times(
      simulation,
      {{3, 6.25}, {6.25, 8.75}, {9, 11.25}, {15, 17}, {17, 20}, {37, 44.5}, {44.5, 49}});
  EXPECT_EQ(simulation.iteration, Seconds(49));
  EXPECT_EQ(simulation.inverse_load, std::vector<Seconds>({Seconds(8), Seconds(4)}));
}

TEST(OwnerTimeline, GradientsAreExchangedInStepsWithoutNewInverses) {
  const ModelSpec model = three_layers();
  const IterationResult simulation =
      simulate(owner_plan(model, StepKind::kFactors), model, owner_costs());

  // As the full step up to 20. Rank 0 preconditions 20-27.5-29, broadcast 29-36.5. Rank 1
  // preconditions 20-23, broadcast 36.5-41.
  EXPECT_EQ(from(20, compute(simulation, 0)),
            Timeline({{kPrecondition, 20, 27.5}, {kPrecondition, 27.5, 29}}));
  EXPECT_EQ(from(20, compute(simulation, 1)), Timeline({{kPrecondition, 20, 23}}));
  expect_channel_times(
      simulation,
      {{3, 6.25}, {6.25, 8.75}, {9, 11.25}, {15, 17}, {17, 20}, {29, 36.5}, {36.5, 41}});
  EXPECT_EQ(simulation.iteration, Seconds(41));
}

TEST(OwnerTimeline, GradientsAreExchangedInStepsWithoutFactors) {
  const ModelSpec model = three_layers();
  const IterationResult simulation =
      simulate(owner_plan(model, StepKind::kGradients), model, owner_costs());

  // F 0-1-2-3, B_2 -5, B_1 -7, B_0 -9. Reduces: 4 elements 2 s, 5-7; 8 elements 3 s, 9-12.
  // Rank 0 preconditions 12-19.5-21, broadcast 21-28.5. Rank 1 12-15, broadcast 28.5-33.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kPass, 0, 1},
                                              {kPass, 1, 2},
                                              {kPass, 2, 3},
                                              {kPass, 3, 5},
                                              {kPass, 5, 7},
                                              {kPass, 7, 9},
                                              {kPrecondition, 12, 19.5},
                                              {kPrecondition, 19.5, 21}}));
  EXPECT_EQ(from(9, compute(simulation, 1)), Timeline({{kPrecondition, 12, 15}}));
  expect_channel_times(simulation, {{5, 7}, {9, 12}, {21, 28.5}, {28.5, 33}});
  EXPECT_EQ(simulation.iteration, Seconds(33));
}

TEST(OwnerTimeline, EveryWorkerSpendsHostTimeOnAGradientBroadcastAndOnlyTheRootUnpacks) {
  // d_A = 3, d_G = 2, gradient 6; owned by rank 1.
  const ModelSpec model = tiny_model({{3, 2}}, layer_times(1, 2, 1, 1));
  CostModel costs = affine_costs(2, 1, 0.5, one_second_per_row());
  costs.reduce = CollectiveCost(Seconds(1), Seconds(0.25));
  costs.compute = precondition_rate(16);
  costs.overheads.host_per_tensor = Seconds(0.5);
  const Plan plan = by_hand(model, 2, FactorSchedule::kPipelined,
                            {reduce_to(1, {factor_a(0), gradient(0), factor_g(0)}, 15)},
                            layers_owned(model, {{0, 1}}));

  const IterationResult simulation = simulate(plan, model, costs);

  // A_0 1.5 s: 0-1.5, F_0 -2.5, B_0 2.5 s: -5, G_0 1.5 s: -6.5. Reduce 1 + 15/4 = 4.75: -11.25.
  // Rank 1 unpacks A_0 -11.75 and G_0 -12.25, inverts -15.25 and -17.25, preconditions 60/16 = 3.75
  // s -21, host -21.5. Rank 0 only its host time: 11.25-11.75. Broadcast of 6 + 2
  // elements 1 + 4 = 5: 21.5-26.5.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kFactor, 0, 1.5},
                                              {kPass, 1.5, 2.5},
                                              {kPass, 2.5, 5},
                                              {kFactor, 5, 6.5},
                                              {kPrecondition, 11.25, 11.75}}));
  EXPECT_EQ(from(6.5, compute(simulation, 1)), Timeline({{kFactor, 11.25, 11.75},
                                                         {kFactor, 11.75, 12.25},
                                                         {kInverse, 12.25, 15.25},
                                                         {kInverse, 15.25, 17.25},
                                                         {kPrecondition, 17.25, 21},
                                                         {kPrecondition, 21, 21.5}}));
  expect_channel_times(simulation, {{6.5, 11.25}, {21.5, 26.5}});
  EXPECT_EQ(simulation.iteration, Seconds(26.5));
}

TEST(OwnerTimeline, LayerOfNobodySplitsTheBroadcastAndIsPreconditionedLast) {
  // Inverses 2 + 1, 1 + 1, 2 + 1 s; preconditioning 3, 1, 3 s at 4 flops per second; everything
  // before the inverse stage is free.
  const ModelSpec model = tiny_model({{2, 1}, {1, 1}, {2, 1}});
  CostModel costs = affine_costs(2, 1, 0.5, one_second_per_row());
  costs.all_reduce = costs.reduce = CollectiveCost();
  costs.compute = precondition_rate(4);
  const Plan plan = by_hand(model, 2, FactorSchedule::kPipelined,
                            {reduce_to(0, {factor_a(0), gradient(0), factor_g(0)}, 6),
                             all_reduce({factor_a(1), gradient(1), factor_g(1)}, 3),
                             reduce_to(0, {factor_a(2), gradient(2), factor_g(2)}, 6)},
                            layers_owned(model, {{0, 0}, {1, kEveryone}, {2, 0}}));

  const IterationResult simulation = simulate(plan, model, costs);

  // Rank 0: A_0 0-2, G_0 -3, preconditions l0 -6, A_1 -7, G_1 -8, A_2 -10, G_2 -11, l2 -14.
  // Broadcasts of 2 + 2 elements, 3 s: 6-9 and 14-17. Rank 1: A_1 0-1, G_1 1-2. Both precondition
  // l1 when all broadcasts have arrived: 17-18.
  EXPECT_EQ(compute(simulation, 0), Timeline({{kInverse, 0, 2},
                                              {kInverse, 2, 3},
                                              {kPrecondition, 3, 6},
                                              {kInverse, 6, 7},
                                              {kInverse, 7, 8},
                                              {kInverse, 8, 10},
                                              {kInverse, 10, 11},
                                              {kPrecondition, 11, 14},
                                              {kPrecondition, 17, 18}}));
  EXPECT_EQ(compute(simulation, 1),
            Timeline({{kInverse, 0, 1}, {kInverse, 1, 2}, {kPrecondition, 17, 18}}));
  expect_channel_times(simulation, {{6, 9}, {14, 17}});
  EXPECT_EQ(simulation.iteration, Seconds(18));
}

}  // namespace
}  // namespace spdkfac
