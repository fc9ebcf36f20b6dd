// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/simulator.h"
#include "support/models.h"

namespace spdkfac {
namespace {

using support::affine_costs;
using support::layer_times;
using support::tiny_model;

// Packed A 6 + 3, packed G 3 + 1, so inverses of 13 elements; factors of 17, with the number of
// examples of each of the four; gradients 6 + 2 = 8.
ModelSpec thirteen_and_eight() { return tiny_model({{3, 2}, {2, 1}}, layer_times(1, 2, 1, 1)); }

TEST(BytesPerWorker, OfEveryNamedAlgorithm) {
  // An element is 4 bytes. On four workers an all-reduce sends 2·3/4 of it, 6 bytes per element; a
  // reduce and a broadcast 3 bytes. Inverses cost so much that `balanced` replicates none.
  const double gradients = 8 * 6;                                    // 48
  const double replicated = gradients + 17 * 6;                      // 150
  const double exchanged = replicated + 13 * 3;                      // 189
  const double traces = 2 * 2 * 6;                                   // two layers, A and G
  const double owner_reduce = gradients + 17 * 3 + traces + 13 * 3;  // 162
  const double inner = 2 * 2 * 3;                                    // two elements for each layer
  const double owner_precondition = 8 * 3 + 17 * 3 + 8 * 3 + inner;  // 111
  const std::map<std::string, double> expected = {{"sgd", gradients},
                                                  {"kfac", replicated},
                                                  {"d-kfac", replicated},
                                                  {"pipe", replicated},
                                                  {"mpd-kfac", exchanged},
                                                  {"spd-kfac", exchanged},
                                                  {"lbp", exchanged},
                                                  {"naive", exchanged},
                                                  {"lw-none", exchanged},
                                                  {"lw-threshold", exchanged},
                                                  {"sp-otf", exchanged},
                                                  {"optimal-fusion", exchanged},
                                                  {"owner-reduce", owner_reduce},
                                                  {"owner-precondition", owner_precondition},
                                                  {"owner-blocks", owner_precondition}};
  const ModelSpec model = thirteen_and_eight();
  const CostModel costs = affine_costs(4, 1, 0.5, CubicInverse{100, 0, 0, 0});
  for (const AlgorithmInfo& info : named_algorithms()) {
    SCOPED_TRACE(info.name);
    ASSERT_TRUE(expected.contains(info.name));
    EXPECT_DOUBLE_EQ(bytes_per_worker(make_plan(model, costs, 4, info.options), model),
                     expected.at(info.name));
  }
}

TEST(BytesPerWorker, OfStepsThatRefreshLess) {
  const ModelSpec model = thirteen_and_eight();
  const CostModel costs = affine_costs(4, 1, 0.5, CubicInverse{100, 0, 0, 0});
  const auto bytes = [&](const std::string& algorithm, StepKind step) {
    return bytes_per_worker(make_plan(model, costs, 4, preset(algorithm), {}, step), model);
  };
  EXPECT_DOUBLE_EQ(bytes("spd-kfac", StepKind::kFactors), 8 * 6 + 17 * 6);
  EXPECT_DOUBLE_EQ(bytes("spd-kfac", StepKind::kGradients), 8 * 6);
  // Gradients are reduced and broadcast in every step, with 2·2 elements of inner products.
  EXPECT_DOUBLE_EQ(bytes("owner-precondition", StepKind::kFactors), 8 * 3 + 17 * 3 + 12 * 3);
  EXPECT_DOUBLE_EQ(bytes("owner-precondition", StepKind::kGradients), 8 * 3 + 12 * 3);
}

TEST(BytesPerWorker, InversesThatAreNotRenewedDoNotTravel) {
  const ModelSpec model = thirteen_and_eight();
  const CostModel costs = affine_costs(4, 1, 0.5, CubicInverse{100, 0, 0, 0});
  const auto bytes = [&](const std::string& algorithm, const std::vector<bool>& renewed) {
    return bytes_per_worker(make_plan(model, costs, 4, preset(algorithm)), model, renewed);
  };
  const double rest = 8 * 6 + 17 * 6;
  EXPECT_DOUBLE_EQ(bytes("spd-kfac", {true, false}), rest + (6 + 3) * 3);
  EXPECT_DOUBLE_EQ(bytes("spd-kfac", {false, true}), rest + (3 + 1) * 3);
  EXPECT_DOUBLE_EQ(bytes("spd-kfac", {false, false}), rest);
  // Owners send V in every step.
  EXPECT_DOUBLE_EQ(bytes("owner-precondition", {false, false}), bytes("owner-precondition", {}));
}

TEST(BytesPerWorker, IsZeroOnOneWorker) {
  const ModelSpec model = thirteen_and_eight();
  const CostModel costs = affine_costs(1, 1, 0.5);
  for (const AlgorithmInfo& info : named_algorithms()) {
    EXPECT_EQ(bytes_per_worker(make_plan(model, costs, 1, info.options), model), 0) << info.name;
  }
}

}  // namespace
}  // namespace spdkfac
