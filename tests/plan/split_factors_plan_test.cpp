// SPDX-License-Identifier: Apache-2.0
// Tables and plans of layers with groups, and of factors in blocks and diagonals.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/plan/model_file.h"
#include "spdkfac/plan/plan_file.h"
#include "spdkfac/plan/planner.h"
#include "support/config_error.h"
#include "support/models.h"

namespace spdkfac {
namespace {

using support::affine_costs;
using support::config_error;
using support::layer_times;
using support::tiny_model;
using ::testing::HasSubstr;

// A depthwise layer of 6 groups, one whose A is 3 blocks of at most 4 rows, one whose G is a
// diagonal of 50 rows, and a plain one.
ModelSpec model_of_splits() {
  ModelSpec model = tiny_model({{9, 1}, {10, 3}, {4, 50}, {3, 2}}, layer_times(1, 2, 1, 1));
  model.layers[0].groups = 6;
  model.layers[0].gradients = {6 * 9};
  model.layers[1].blocks_a = 3;
  model.layers[2].blocks_g = 50;
  model.parameters = 6 * 9 + 30 + 200 + 6;
  return model;
}
// Triangles: 6·45 + 6·1, 3·10 + 6, 10 + 50, 6 + 3.
constexpr std::int64_t kFactorElements = 270 + 6 + 30 + 6 + 10 + 50 + 6 + 3;

TEST(SplitTable, IsReadAndWrittenAndPlainLayersHaveNoFieldsMore) {
  const ModelSpec model = model_of_splits();
  const Json document = to_json(model);
  EXPECT_EQ(document["layers"][0]["groups"], 6);
  EXPECT_EQ(document["layers"][2]["blocks_g"], 50);
  for (const char* field : {"groups", "blocks_a", "blocks_g"}) {
    EXPECT_FALSE(document["layers"][3].contains(field)) << field;
  }
  const ModelSpec read = parse_model(document, "splits.json");
  EXPECT_EQ(to_json(read), document);
  EXPECT_EQ(read.layers[0].shape(FactorSide::kA), (FactorShape{9, 6}));
  EXPECT_EQ(read.layers[1].shape(FactorSide::kA), (FactorShape{10, 1, 3}));
}

TEST(SplitTable, WhatDoesNotFitIsRefused) {
  const auto error_with = [](std::size_t layer, const char* field, std::int64_t value) {
    Json document = to_json(model_of_splits());
    document["layers"][layer][field] = value;
    return config_error([&] { parse_model(document, "splits.json"); });
  };
  EXPECT_THAT(error_with(0, "groups", 0), HasSubstr("layers[0].groups"));
  EXPECT_THAT(error_with(0, "groups", 5), HasSubstr("groups·d_a·d_g = 45 elements (got 54)"));
  // 7 blocks of 2 rows would be 14.
  EXPECT_THAT(error_with(1, "blocks_a", 7),
              HasSubstr("a factor of 10 rows has no 7 blocks of one dimension; correct blocks_a"));
  EXPECT_THAT(error_with(2, "blocks_g", 51), HasSubstr("correct blocks_g"));
}

// 10 + d³ seconds for a matrix.
TEST(SplitTable, InversesTakeTheTimeOfTheirBlocksAndDiagonalsThatOfOne) {
  const ModelSpec model = model_of_splits();
  const CostModel costs = affine_costs(2, 1, 1, CubicInverse{10, 0, 0, 1});
  const std::vector<LayerCosts> layers = layer_costs(model, costs);
  EXPECT_DOUBLE_EQ(layers[0].inverse_a.value(), 6 * (10 + 729));
  EXPECT_DOUBLE_EQ(layers[0].inverse_g.value(), 11);  // 6 matrices of one row
  EXPECT_DOUBLE_EQ(layers[1].inverse_a.value(), 3 * (10 + 64));
  EXPECT_DOUBLE_EQ(layers[2].inverse_g.value(), 11);
}

TEST(SplitPlan, SendsAndPlacesBlocksWithEveryAlgorithm) {
  const ModelSpec model = model_of_splits();
  const CostModel costs = affine_costs(4, 2, 0.1, CubicInverse{1, 0, 0, 0.1});
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (!preset(info.name).second_order()) continue;
    SCOPED_TRACE(info.name);
    const Plan plan = make_plan(model, costs, 4, preset(info.name));
    EXPECT_NO_THROW(validate_against(plan, model, "plan"));
    std::int64_t placed = 0;
    for (const FactorPlacement& factor : plan.placements) placed += factor.packed();
    EXPECT_EQ(placed, kFactorElements);
    std::int64_t sent = 0;
    std::int64_t means = 0;
    for (const Message& message : plan.messages) {
      for (const Member& member : message.members) {
        const LayerSpec& layer = model.layers[static_cast<std::size_t>(member.layer)];
        const std::int64_t elements = member_size(layer, member.kind).elements;
        if (is_factor(member)) sent += elements;
        if (member.kind == TensorKind::kDiagonalMeans) {
          EXPECT_EQ(elements, 2 * layer.groups);
          means += elements;
        }
      }
    }
    EXPECT_EQ(sent, kFactorElements);
    for (const Message& message : plan.messages) {
      const bool of_means = message.members.front().kind == TensorKind::kDiagonalMeans;
      if (of_means) {
        EXPECT_EQ(message.elements, means);
      }
    }
    const Plan read = parse_plan(to_json(plan), "plan.json");
    EXPECT_EQ(read.placements, plan.placements);
    EXPECT_EQ(read.digest(), plan.digest());
  }
}

TEST(SplitPlan, OfOtherBlocksIsRefused) {
  ModelSpec model = model_of_splits();
  const CostModel costs = affine_costs(2, 2, 0.1);
  const Plan plan = make_plan(model, costs, 2, preset("spd-kfac"));
  model.layers[0].groups = 5;
  model.layers[0].gradients = {45};
  EXPECT_THAT(config_error([&] { validate_against(plan, model, "plan"); }),
              HasSubstr("6 blocks are not those of layer l0 (5)"));
}

// An inverse in blocks is broadcast as its triangles.
TEST(SplitPlan, BroadcastsTheTrianglesOfBlocks) {
  const ModelSpec model = model_of_splits();
  const Plan plan = make_plan(model, affine_costs(2, 0.001, 1e-6, CubicInverse{1, 0, 0, 0.1}), 2,
                              preset("mpd-kfac"));
  const std::vector<ResultBroadcast> broadcasts = result_broadcasts(plan, model);
  std::int64_t elements = 0;
  for (const ResultBroadcast& one : broadcasts) elements += one.elements;
  EXPECT_EQ(elements, kFactorElements);
}

}  // namespace
}  // namespace spdkfac
