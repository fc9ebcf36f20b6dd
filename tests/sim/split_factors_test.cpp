// SPDX-License-Identifier: Apache-2.0
// Simulations of layers with groups, and of factors in blocks and diagonals.
#include <gtest/gtest.h>

#include "spdkfac/plan/planner.h"
#include "spdkfac/report/layer_table.h"
#include "spdkfac/sim/simulator.h"
#include "support/models.h"

namespace spdkfac {
namespace {

// One layer of 4 groups and one with a diagonal, on two ranks that both invert everything.
TEST(SplitSimulation, InversesAndMessagesAreThoseOfTheBlocks) {
  ModelSpec model = support::tiny_model({{3, 2}, {5, 40}}, support::layer_times(1, 2, 0.5, 0.5));
  model.layers[0].groups = 4;
  model.layers[0].gradients = {24};
  model.layers[1].blocks_g = 40;
  model.parameters = 24 + 200;
  const CostModel costs = support::affine_costs(2, 0, 1e-3, CubicInverse{0, 0, 0, 1});
  const Plan plan = make_plan(model, costs, 2, preset("d-kfac"));
  const IterationResult result = simulate(plan, model, costs);
  // 4·3³ + 4·2³, then 5³ and one reciprocal of all.
  for (const Seconds load : result.inverse_load) {
    EXPECT_NEAR(load.value(), 4 * 27 + 4 * 8 + 125 + 1, 1e-9);
  }
  // Triangles 4·6 + 4·3 and 15 + 40, gradients, and a count for each of 4 factors; with two ranks
  // an all-reduce sends as many bytes as it has.
  EXPECT_NEAR(bytes_per_worker(plan, model), 4.0 * (24 + 12 + 15 + 40 + 224 + 4), 1e-9);
}

TEST(SplitSimulation, TablesSayWhatIsSplit) {
  ModelSpec model = support::tiny_model({{3, 2}, {10, 40}});
  model.layers[0].groups = 4;
  model.layers[1].blocks_a = 3;
  model.layers[1].blocks_g = 40;
  const std::string table = report::layer_table(model);
  EXPECT_NE(table.find("3 x 4"), std::string::npos);
  EXPECT_NE(table.find("10 in 3"), std::string::npos);
  EXPECT_NE(table.find("40 diagonal"), std::string::npos);
}

}  // namespace
}  // namespace spdkfac
