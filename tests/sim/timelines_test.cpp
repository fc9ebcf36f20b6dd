// SPDX-License-Identifier: Apache-2.0
// Timelines worked out by hand: the passes, their messages and inverses on every worker. Exchanged
// inverses and gradients are in timelines_inverse_test.cpp. All numbers are sums of powers of two,
// so that comparisons are exact.
#include <algorithm>

#include <gtest/gtest.h>

#include "sim/timeline_support.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/simulator.h"
#include "support/models.h"

namespace spdkfac {
namespace {

using namespace timeline;  // NOLINT(google-build-using-namespace)
using support::affine_costs;
using support::layer_times;
using support::tiny_model;

// Collectives 1 + m/2 seconds; inverses of d rows d seconds, so those of `two_layers` 3, 2, 2, 1.
CostModel simple_costs(int world) { return affine_costs(world, 1, 0.5, one_second_per_row()); }

// A_0, F_0, A_1, F_1, B_1, G_1, B_0, G_0 of `two_layers` when nothing slows them.
const Timeline kTwoLayersUndisturbed = {{kFactor, 0, 1}, {kPass, 1, 2},    {kFactor, 2, 6},
                                        {kPass, 6, 8},   {kPass, 8, 11},   {kFactor, 11, 12},
                                        {kPass, 12, 14}, {kFactor, 14, 16}};

TEST(Timeline, FirstOrderStepSendsGradientsWhileTheBackwardPassRuns) {
  // Gradients of 4 and 8 elements; forward 1 s, backward 2 s each.
  const ModelSpec model = tiny_model({{2, 2}, {4, 2}}, layer_times(1, 2, 0, 0));
  const CostModel costs = simple_costs(2);
  const Plan plan = make_plan(model, costs, 2, preset("sgd"));

  const IterationResult simulation = simulate(plan, model, costs);

  // F_0 0-1, F_1 1-2, B_1 2-4, B_0 4-6. Gradient 1 takes 1 + 8/2 = 5: 4-9. Gradient 0 takes
  // 1 + 4/2 = 3, is ready at 6, the channel is free at 9: 9-12. Nothing follows.
  const Timeline passes = {{kPass, 0, 1}, {kPass, 1, 2}, {kPass, 2, 4}, {kPass, 4, 6}};
  const Timeline messages = {{kGradComm, 4, 9}, {kGradComm, 9, 12}};
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(compute(simulation, rank), passes);
    EXPECT_EQ(channel(simulation, rank), messages);
  }
  EXPECT_EQ(simulation.iteration, Seconds(12));
}

TEST(Timeline, LayerGradientCountsAsManyTensorsAsItHas) {
  ModelSpec model = tiny_model({{2, 2}, {4, 2}}, layer_times(1, 2, 0, 0));
  model.layers[0].gradients = {4, 3, 1};
  CostModel costs = simple_costs(2);
  costs.all_reduce = CollectiveCost(Seconds(1), Seconds(0.5), Seconds(0.25));
  const Plan plan =
      by_hand(model, 2, FactorSchedule::kNone, {all_reduce({gradient(1), gradient(0)}, 16)});

  const IterationResult simulation = simulate(plan, model, costs);

  // Ready with B_0 at 6; 1 + 16/2 + (1 + 3)/4 = 10 s.
  EXPECT_EQ(channel(simulation), Timeline({{kGradComm, 6, 16}}));
  EXPECT_EQ(simulation.iteration, Seconds(16));
}

// D-KFAC: what `bulk` does with `two_layers` in each kind of step.
Plan bulk_plan(const ModelSpec& model, StepKind step) {
  std::vector<Message> messages = {all_reduce({gradient(1)}, 2), all_reduce({gradient(0)}, 6)};
  if (step != StepKind::kGradients) {
    messages.push_back(all_reduce({factor_a(0), factor_a(1)}, 9));
    messages.push_back(all_reduce({factor_g(1), factor_g(0)}, 4));
  }
  return by_hand(model, 2, FactorSchedule::kBulk, messages, replicated(model), step);
}

TEST(Timeline, BulkStepComputesFactorsWhenTheGradientsHaveArrived) {
  const ModelSpec model = two_layers();
  CostModel costs = simple_costs(2);
  costs.compute = precondition_rate(4);

  const IterationResult simulation = simulate(bulk_plan(model, StepKind::kFull), model, costs);

  // F_0 0-1, F_1 1-3, B_1 3-6, B_0 6-8. Gradients: 2 elements 2 s, 6-8; 6 elements 4 s, 8-12.
  // Joined at 12: A_0 12-13, A_1 13-17, G_1 17-18, G_0 18-20. Factor messages leave at 20:
  // 9 elements 5.5 s, 20-25.5; 4 elements 3 s, 25.5-28.5. Inverses A_0 3, G_0 2, A_1 2, G_1 1:
  // 28.5-31.5-33.5-35.5-36.5. Preconditioning 2·3·2·5/4 = 15 and 2·2·1·3/4 = 3: 51.5, 54.5.
  const Timeline work = {{kPass, 0, 1},
                         {kPass, 1, 3},
                         {kPass, 3, 6},
                         {kPass, 6, 8},
                         {kFactor, 12, 13},
                         {kFactor, 13, 17},
                         {kFactor, 17, 18},
                         {kFactor, 18, 20},
                         {kInverse, 28.5, 31.5},
                         {kInverse, 31.5, 33.5},
                         {kInverse, 33.5, 35.5},
                         {kInverse, 35.5, 36.5},
                         {kPrecondition, 36.5, 51.5},
                         {kPrecondition, 51.5, 54.5}};
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(compute(simulation, rank), work);
    EXPECT_EQ(channel(simulation, rank), Timeline({{kGradComm, 6, 8},
                                                   {kGradComm, 8, 12},
                                                   {kFactorComm, 20, 25.5},
                                                   {kFactorComm, 25.5, 28.5}}));
  }
  EXPECT_EQ(simulation.iteration, Seconds(54.5));
  EXPECT_EQ(simulation.inverse_load, std::vector<Seconds>({Seconds(8), Seconds(8)}));
}

TEST(Timeline, PlannerAndSimulatorAgreeOnTheBulkStep) {
  const ModelSpec model = two_layers();
  CostModel costs = simple_costs(2);
  costs.compute = precondition_rate(4);
  const Plan plan = make_plan(model, costs, 2, preset("d-kfac"));
  // Threshold fusion: gradient 1 leaves alone at 6 since gradient 0 is ready at 8 only; the factors
  // are ready together. Exactly the plan by hand.
  EXPECT_EQ(plan.messages, bulk_plan(model, StepKind::kFull).messages);
  EXPECT_EQ(simulate(plan, model, costs).iteration, Seconds(54.5));
}

TEST(Timeline, BulkStepWithoutNewInversesPreconditionsAfterTheFactors) {
  const ModelSpec model = two_layers();
  CostModel costs = simple_costs(2);
  costs.compute = precondition_rate(4);

  const IterationResult simulation = simulate(bulk_plan(model, StepKind::kFactors), model, costs);

  // As the full step up to 28.5, then preconditioning 15 and 3.
  EXPECT_EQ(from(20, compute(simulation, 0)),
            Timeline({{kPrecondition, 28.5, 43.5}, {kPrecondition, 43.5, 46.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(46.5));
  EXPECT_EQ(simulation.inverse_load, std::vector<Seconds>(2));
}

TEST(Timeline, BulkStepWithoutFactorsPreconditionsAfterTheGradients) {
  const ModelSpec model = two_layers();
  CostModel costs = simple_costs(2);
  costs.compute = precondition_rate(4);

  const IterationResult simulation = simulate(bulk_plan(model, StepKind::kGradients), model, costs);

  // The gradients have arrived at 12.
  EXPECT_EQ(from(8, compute(simulation, 0)),
            Timeline({{kPrecondition, 12, 27}, {kPrecondition, 27, 30}}));
  EXPECT_EQ(channel(simulation), Timeline({{kGradComm, 6, 8}, {kGradComm, 8, 12}}));
  EXPECT_EQ(simulation.iteration, Seconds(30));
}

TEST(Timeline, NaiveStepSendsFactorsAtTheEndOfEachPass) {
  const ModelSpec model = two_layers();
  const CostModel costs = simple_costs(2);
  const Plan plan =
      by_hand(model, 2, FactorSchedule::kNaive,
              {all_reduce({factor_a(0), factor_a(1)}, 9), all_reduce({gradient(1)}, 2),
               all_reduce({gradient(0)}, 6), all_reduce({factor_g(1), factor_g(0)}, 4)},
              replicated(model));

  const IterationResult simulation = simulate(plan, model, costs);

  // A may leave at the end of the forward pass: 9 elements 5.5 s, 8-13.5. Gradient 1 is ready at
  // 11, 2 s: 13.5-15.5. Gradient 0 is ready at 14, 4 s: 15.5-19.5. G may leave at 16, 3 s:
  // 19.5-22.5. Inverses 3 + 2 + 2 + 1.
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 8, 13.5},
                                           {kGradComm, 13.5, 15.5},
                                           {kGradComm, 15.5, 19.5},
                                           {kFactorComm, 19.5, 22.5}}));
  Timeline work = kTwoLayersUndisturbed;
  work.insert(work.end(), {{kInverse, 22.5, 25.5},
                           {kInverse, 25.5, 27.5},
                           {kInverse, 27.5, 29.5},
                           {kInverse, 29.5, 30.5}});
  EXPECT_EQ(compute(simulation, 1), work);
  EXPECT_EQ(simulation.iteration, Seconds(30.5));
}

TEST(Timeline, NaiveStepHoldsTheFirstGUntilTheBackwardPassEnds) {
  const ModelSpec model = two_layers();
  const CostModel costs = simple_costs(2);
  const Plan plan = by_hand(
      model, 2, FactorSchedule::kNaive,
      {all_reduce({factor_a(0)}, 6), all_reduce({factor_a(1)}, 3), all_reduce({gradient(1)}, 2),
       all_reduce({factor_g(1)}, 1), all_reduce({gradient(0)}, 6), all_reduce({factor_g(0)}, 3)},
      replicated(model));

  const IterationResult simulation = simulate(plan, model, costs);

  // A_0 4 s: 8-12, not at 1. A_1 2.5 s: 12-14.5. Gradient 1: 14.5-16.5. G_1 may leave at 16:
  // 16.5-18. Gradient 0 4 s: 18-22. G_0 2.5 s: 22-24.5. Inverses 8 s.
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 8, 12},
                                           {kFactorComm, 12, 14.5},
                                           {kGradComm, 14.5, 16.5},
                                           {kFactorComm, 16.5, 18},
                                           {kGradComm, 18, 22},
                                           {kFactorComm, 22, 24.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(32.5));
}

Plan pipelined_plan(const ModelSpec& model) {
  return by_hand(
      model, 2, FactorSchedule::kPipelined,
      {all_reduce({factor_a(0)}, 6), all_reduce({factor_a(1)}, 3), all_reduce({gradient(1)}, 2),
       all_reduce({factor_g(1)}, 1), all_reduce({gradient(0)}, 6), all_reduce({factor_g(0)}, 3)},
      replicated(model));
}

TEST(Timeline, PipelinedStepSendsEachTensorWhenItIsComputed) {
  const ModelSpec model = two_layers();
  const IterationResult simulation = simulate(pipelined_plan(model), model, simple_costs(2));

  // A_0 ready at 1, 4 s: 1-5. A_1 at 6, 2.5 s: 6-8.5. Gradient 1 at 11, before G_1, 2 s: 11-13.
  // G_1 at 12, 1.5 s: 13-14.5. Gradient 0 at 14, 4 s: 14.5-18.5. G_0 at 16, 2.5 s: 18.5-21.
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 1, 5},
                                           {kFactorComm, 6, 8.5},
                                           {kGradComm, 11, 13},
                                           {kFactorComm, 13, 14.5},
                                           {kGradComm, 14.5, 18.5},
                                           {kFactorComm, 18.5, 21}}));
  // Inverses 3, 2, 2, 1 on both.
  Timeline work = kTwoLayersUndisturbed;
  work.insert(work.end(),
              {{kInverse, 21, 24}, {kInverse, 24, 26}, {kInverse, 26, 28}, {kInverse, 28, 29}});
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(compute(simulation, rank), work);
  EXPECT_EQ(simulation.iteration, Seconds(29));
}

TEST(Timeline, FusedMessagesWaitForTheirLastMember) {
  const ModelSpec model = two_layers();
  CostModel costs = simple_costs(2);
  costs.all_reduce = CollectiveCost(Seconds(1), Seconds(0.5), Seconds(0.25));
  const Plan plan = by_hand(
      model, 2, FactorSchedule::kPipelined,
      {all_reduce({factor_a(0), factor_a(1)}, 9),
       all_reduce({gradient(1), factor_g(1), gradient(0)}, 9), all_reduce({factor_g(0)}, 3)},
      replicated(model));

  const IterationResult simulation = simulate(plan, model, costs);

  // Both A at 6: 1 + 4.5 + 2/4 = 6 s, 6-12. The second at 14 with gradient 0: 1 + 4.5 + 3/4 = 6.25,
  // 14-20.25. G_0 at 16: 1 + 1.5 + 1/4 = 2.75, 20.25-23. Inverses 8 s.
  const Timeline messages = channel(simulation);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[0], (Slot{kFactorComm, 6, 12}));
  EXPECT_EQ(messages[1].start, 14);  // holds both kinds of tensors
  EXPECT_EQ(messages[1].end, 20.25);
  EXPECT_EQ(messages[2], (Slot{kFactorComm, 20.25, 23}));
  EXPECT_EQ(simulation.iteration, Seconds(31));
}

TEST(Timeline, MessageThatIsReadyEarlyWaitsForThoseBeforeItInThePlan) {
  const ModelSpec model = two_layers();
  Plan plan = pipelined_plan(model);
  std::rotate(plan.messages.begin(), plan.messages.end() - 1, plan.messages.end());

  const IterationResult simulation = simulate(plan, model, simple_costs(2));

  // G_0 comes first in the plan and is the last to be ready: 16-18.5. Behind it A_0 4 s, A_1 2.5,
  // gradient 1 2, G_1 1.5, gradient 0 4 without a gap: 22.5, 25, 27, 28.5, 32.5. Inverses 8 s.
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 16, 18.5},
                                           {kFactorComm, 18.5, 22.5},
                                           {kFactorComm, 22.5, 25},
                                           {kGradComm, 25, 27},
                                           {kFactorComm, 27, 28.5},
                                           {kGradComm, 28.5, 32.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(40.5));
}

TEST(Timeline, ComputationIsSlowerWhileTheChannelIsBusy) {
  const ModelSpec model = two_layers();
  CostModel costs = simple_costs(2);
  costs.overheads.compute_rate_under_communication = 0.5;

  const IterationResult simulation = simulate(pipelined_plan(model), model, costs);

  // A_0 0-1. Message A_0 1-5.
  // F_0, 1 s of work at half speed: 1-3. A_1, 4 s: 3-5 does 1, then 3 at full speed: 3-8.
  // Message A_1 8-10.5. F_1, 2 s: 8-10.5 does 1.25, then 0.75: 8-11.25. B_1 11.25-14.25.
  // Gradient 1 14.25-16.25. G_1, 1 s: exactly as long as the message, 14.25-16.25.
  // Message G_1 16.25-17.75. B_0, 2 s: 0.75 by 17.75, then 1.25: 16.25-19.
  // Gradient 0 19-23. G_0, 2 s: 19-23. Message G_0 23-25.5. Inverses 8 s on a quiet channel.
  const Timeline work = {{kFactor, 0, 1},        {kPass, 1, 3},          {kFactor, 3, 8},
                         {kPass, 8, 11.25},      {kPass, 11.25, 14.25},  {kFactor, 14.25, 16.25},
                         {kPass, 16.25, 19},     {kFactor, 19, 23},      {kInverse, 25.5, 28.5},
                         {kInverse, 28.5, 30.5}, {kInverse, 30.5, 32.5}, {kInverse, 32.5, 33.5}};
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(compute(simulation, rank), work);
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 1, 5},
                                           {kFactorComm, 8, 10.5},
                                           {kGradComm, 14.25, 16.25},
                                           {kFactorComm, 16.25, 17.75},
                                           {kGradComm, 19, 23},
                                           {kFactorComm, 23, 25.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(33.5));
}

// Gradients of 4 and 8 elements: 3 and 5 s; the backward passes take 4 and 2 s.
ModelSpec long_first_layer() {
  ModelSpec model = tiny_model({{2, 2}, {4, 2}}, layer_times(1, 2, 0, 0));
  model.layers[0].times = layer_times(1, 4, 0, 0);
  return model;
}

TEST(Timeline, MessagesAreSlowerBesideComputation) {
  const ModelSpec model = two_layers();
  CostModel costs = simple_costs(2);
  costs.overheads.communication_rate_under_computation = 0.5;

  const IterationResult simulation = simulate(pipelined_plan(model), model, costs);

  // Computation is undisturbed and ends at 16. A_0, 4 s alone, takes 8: 1-9. A_1, 2.5 s, 5: 9-14.
  // Gradient 1, 2 s: 1 of them by 16, the other at full speed: 14-17. Then G_1 1.5, gradient 0 4,
  // G_0 2.5 s as ever: 18.5, 22.5, 25. Inverses 8 s.
  EXPECT_EQ(channel(simulation), Timeline({{kFactorComm, 1, 9},
                                           {kFactorComm, 9, 14},
                                           {kGradComm, 14, 17},
                                           {kFactorComm, 17, 18.5},
                                           {kGradComm, 18.5, 22.5},
                                           {kFactorComm, 22.5, 25}}));
  EXPECT_EQ(simulation.iteration, Seconds(33));
}

TEST(Timeline, MessageThatOutlastsComputationGoesOnAtFullSpeed) {
  const ModelSpec model = long_first_layer();
  CostModel costs = simple_costs(2);
  costs.overheads.compute_rate_under_communication = 0.5;
  costs.overheads.communication_rate_under_computation = 0.5;
  const Plan plan = by_hand(model, 2, FactorSchedule::kNone,
                            {all_reduce({gradient(1)}, 8), all_reduce({gradient(0)}, 4)});

  const IterationResult simulation = simulate(plan, model, costs);

  // Gradient 1, 5 s, leaves at 4. B_0, 4 s at half speed: 4-12. By then 4 s of the message are
  // done, 1 is left: 4-13. Gradient 0, 3 s, is ready at 12: 13-16.
  EXPECT_EQ(compute(simulation, 0),
            Timeline({{kPass, 0, 1}, {kPass, 1, 2}, {kPass, 2, 4}, {kPass, 4, 12}}));
  EXPECT_EQ(channel(simulation), Timeline({{kGradComm, 4, 13}, {kGradComm, 13, 16}}));
  EXPECT_EQ(simulation.iteration, Seconds(16));
}

TEST(Timeline, MessagesAreSlowedByTheWorkerThatComputesLongest) {
  const ModelSpec model = long_first_layer();
  CostModel costs = simple_costs(2);
  costs.overheads.communication_rate_under_computation = 0.5;
  const Plan plan = by_hand(model, 2, FactorSchedule::kNone,
                            {all_reduce({gradient(1)}, 8), all_reduce({gradient(0)}, 4)});

  const IterationResult simulation = simulate(plan, model, costs, {.slow = {{1, 2.0}}});

  // Rank 1: B_1 4-8, B_0 8-16. Gradient 1, 5 s, leaves at 8: 4 s are done by 16, 1 is left: 8-17.
  // Rank 0, done at 8, does not matter. Gradient 0, 3 s: 17-20.
  EXPECT_EQ(channel(simulation), Timeline({{kGradComm, 8, 17}, {kGradComm, 17, 20}}));
  EXPECT_EQ(simulation.iteration, Seconds(20));
}

TEST(Timeline, BulkStepSlowsMessagesUntilItWaitsForThem) {
  const ModelSpec model = two_layers();
  CostModel costs = simple_costs(2);
  costs.overheads.communication_rate_under_computation = 0.5;

  const IterationResult simulation = simulate(bulk_plan(model, StepKind::kFull), model, costs);

  // F_0 0-1, F_1 1-3, B_1 3-6, B_0 6-8. Gradient 1, 2 s: 1 beside B_0, 1 alone: 6-9. Gradient 0,
  // 4 s: 9-13. Joined at 13: factors 8 s, -21. Messages 5.5 and 3 s, -29.5, with nothing beside
  // them. Inverses 8 s.
  EXPECT_EQ(channel(simulation), Timeline({{kGradComm, 6, 9},
                                           {kGradComm, 9, 13},
                                           {kFactorComm, 21, 26.5},
                                           {kFactorComm, 26.5, 29.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(37.5));
}

TEST(Timeline, SlowWorkerDelaysEveryCollective) {
  const ModelSpec model = long_first_layer();
  const Plan plan = by_hand(model, 3, FactorSchedule::kNone,
                            {all_reduce({gradient(1)}, 8), all_reduce({gradient(0)}, 4)});

  const IterationResult simulation = simulate(plan, model, simple_costs(3), {.slow = {{1, 2.0}}});

  // Rank 1: F_0 0-2, F_1 2-4, B_1 4-8, B_0 8-16. Gradient 1 cannot start before 8: 8-13; gradient 0
  // not before 16: 16-19. Ranks 0 and 2 compute as ever.
  EXPECT_EQ(compute(simulation, 1),
            Timeline({{kPass, 0, 2}, {kPass, 2, 4}, {kPass, 4, 8}, {kPass, 8, 16}}));
  for (const int rank : {0, 2}) {
    EXPECT_EQ(compute(simulation, rank),
              Timeline({{kPass, 0, 1}, {kPass, 1, 2}, {kPass, 2, 4}, {kPass, 4, 8}}));
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(channel(simulation, rank), Timeline({{kGradComm, 8, 13}, {kGradComm, 16, 19}}));
  }
  EXPECT_EQ(simulation.iteration, Seconds(19));
}

TEST(Timeline, SlowWorkerIsSlowedTwiceWhileTheChannelIsBusy) {
  const ModelSpec model = long_first_layer();
  CostModel costs = simple_costs(2);
  costs.overheads.compute_rate_under_communication = 0.5;
  const Plan plan = by_hand(model, 2, FactorSchedule::kNone,
                            {all_reduce({gradient(1)}, 8), all_reduce({gradient(0)}, 4)});

  const IterationResult simulation = simulate(plan, model, costs, {.slow = {{1, 2.0}}});

  // Rank 1: B_1 4-8; gradient 1 8-13. B_0 is 2·4 = 8 s of work: 2.5 by 13, then 5.5: 8-18.5.
  // Gradient 0 18.5-21.5. Rank 0 ends B_0 at 8, just when the channel becomes busy.
  EXPECT_EQ(compute(simulation, 1),
            Timeline({{kPass, 0, 2}, {kPass, 2, 4}, {kPass, 4, 8}, {kPass, 8, 18.5}}));
  EXPECT_EQ(compute(simulation, 0),
            Timeline({{kPass, 0, 1}, {kPass, 1, 2}, {kPass, 2, 4}, {kPass, 4, 8}}));
  EXPECT_EQ(channel(simulation), Timeline({{kGradComm, 8, 13}, {kGradComm, 18.5, 21.5}}));
  EXPECT_EQ(simulation.iteration, Seconds(21.5));
}

TEST(Timeline, OneWorkerNeitherSendsNorPacks) {
  const ModelSpec model = two_layers();
  CostModel costs = simple_costs(1);
  costs.compute = precondition_rate(4);
  costs.overheads = {Seconds(0.5), Seconds(0.25), Seconds(0.125), 0.5};
  const Plan plan = make_plan(model, costs, 1, preset("spd-kfac"));

  const IterationResult simulation = simulate(plan, model, costs);

  // The passes without any overhead, inverses 3, 2, 2, 1, preconditioning 15 and 3.
  Timeline work = kTwoLayersUndisturbed;
  work.insert(work.end(), {{kInverse, 16, 19},
                           {kInverse, 19, 21},
                           {kInverse, 21, 23},
                           {kInverse, 23, 24},
                           {kPrecondition, 24, 39},
                           {kPrecondition, 39, 42}});
  EXPECT_EQ(compute(simulation, 0), work);
  EXPECT_EQ(channel(simulation), Timeline());
  EXPECT_EQ(simulation.iteration, Seconds(42));
}

}  // namespace
}  // namespace spdkfac
