// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/cost_model.h"

#include <cmath>
#include <functional>
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/error.h"
#include "spdkfac/plan/cluster_file.h"
#include "support/config_error.h"
#include "support/models.h"

namespace spdkfac {
namespace {

using support::affine_costs;
using support::config_error;
using support::layer_times;
using support::tiny_model;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CostTable, InterpolatesLinearlyBetweenItsPoints) {
  const CostTable table({{10, Seconds(2)}, {20, Seconds(6)}, {40, Seconds(7)}});
  EXPECT_DOUBLE_EQ(table(10).value(), 2);
  EXPECT_DOUBLE_EQ(table(12.5).value(), 3);  // 2 + 4·2.5/10
  EXPECT_DOUBLE_EQ(table(20).value(), 6);
  EXPECT_DOUBLE_EQ(table(36).value(), 6.8);  // 6 + 1·16/20
  EXPECT_DOUBLE_EQ(table(40).value(), 7);
}

TEST(CostTable, IsConstantBeforeAndLinearBehindItsPoints) {
  const CostTable table({{10, Seconds(2)}, {20, Seconds(6)}, {40, Seconds(7)}});
  EXPECT_DOUBLE_EQ(table(0).value(), 2);
  EXPECT_DOUBLE_EQ(table(9).value(), 2);
  EXPECT_DOUBLE_EQ(table(100).value(), 10);  // 7 + 60·(7−6)/(40−20)
}

TEST(CostTable, OnePointIsAConstant) {
  const CostTable table({{10, Seconds(2)}});
  EXPECT_DOUBLE_EQ(table(1).value(), 2);
  EXPECT_DOUBLE_EQ(table(1000).value(), 2);
}

TEST(CollectiveCost, AffineCountsStartupElementsAndTensors) {
  const CollectiveCost cost(Seconds(3), Seconds(0.5), Seconds(0.25));
  EXPECT_DOUBLE_EQ(cost.time(10).value(), 3 + 5 + 0.25);
  EXPECT_DOUBLE_EQ(cost.time(10, 4).value(), 3 + 5 + 1);
  EXPECT_DOUBLE_EQ(cost.startup().value(), 3);
  EXPECT_DOUBLE_EQ(CollectiveCost().time(1000, 9).value(), 0);
}

TEST(CollectiveCost, TableCountsTensorsToo) {
  const CollectiveCost cost(CostTable({{10, Seconds(2)}, {20, Seconds(6)}}), Seconds(0.5));
  EXPECT_DOUBLE_EQ(cost.time(15, 3).value(), 4 + 1.5);
  EXPECT_DOUBLE_EQ(cost.startup().value(), 2);
}

TEST(CollectiveCost, ScalesStartupAndTransferApart) {
  const CollectiveCost affine =
      CollectiveCost(Seconds(3), Seconds(0.5), Seconds(0.25)).scaled(2, 4);
  // 3·2 + 0.5·4·10 + 0.25: what a tensor costs does not depend on the number of workers.
  EXPECT_DOUBLE_EQ(affine.time(10).value(), 6 + 20 + 0.25);
  // Another network may change that too.
  EXPECT_DOUBLE_EQ(affine.scaled(0.5, 0, 2).time(10).value(), 3 + 0.5);
  // A table's first entry is its start-up: at 20 elements 2·2 + (6−2)·4.
  const CollectiveCost table =
      CollectiveCost(CostTable({{10, Seconds(2)}, {20, Seconds(6)}})).scaled(2, 4);
  EXPECT_DOUBLE_EQ(table.time(10).value(), 4);
  EXPECT_DOUBLE_EQ(table.time(20).value(), 20);
  EXPECT_DOUBLE_EQ(table.startup().value(), 4);
}

TEST(InverseTime, EvaluatesEachForm) {
  EXPECT_DOUBLE_EQ(inverse_time(ExponentialInverse{2, 0.5}, 4).value(), 2 * std::exp(2.0));
  EXPECT_DOUBLE_EQ(inverse_time(PowerInverse{3, 2}, 5).value(), 75);
  // 1 + 2·3 + 3·9 + 4·27
  EXPECT_DOUBLE_EQ(inverse_time(CubicInverse{1, 2, 3, 4}, 3).value(), 142);
  EXPECT_DOUBLE_EQ(inverse_time(CostTable({{2, Seconds(1)}, {4, Seconds(5)}}), 3).value(), 3);
}

TEST(CostModel, ForTheSameWorldChangesNothing) {
  const CostModel costs = affine_costs(4, 3, 0.5).for_world(4);
  EXPECT_EQ(costs.world, 4);
  EXPECT_DOUBLE_EQ(costs.all_reduce.alpha().value(), 3);
  EXPECT_DOUBLE_EQ(costs.all_reduce.beta().value(), 0.5);
}

TEST(CostModel, ScalesEveryCollectiveToAnotherWorld) {
  CostModel costs = affine_costs(4, 3, 0.6, PowerInverse{1, 2});
  struct Scaling {
    AlphaScaling scaling;
    double alpha;
  };
  // 4 to 16 workers: log2 doubles, linear quadruples; β grows by (15/16)/(3/4) = 1.25.
  for (const Scaling& expected : {Scaling{AlphaScaling::kLog, 6},
                                  {AlphaScaling::kLinear, 12},
                                  {AlphaScaling::kConstant, 3}}) {
    costs.alpha_scaling = expected.scaling;
    const CostModel scaled = costs.for_world(16);
    EXPECT_EQ(scaled.world, 16);
    for (const CollectiveCost& collective : {scaled.all_reduce, scaled.reduce, scaled.broadcast}) {
      EXPECT_DOUBLE_EQ(collective.alpha().value(), expected.alpha);
      EXPECT_DOUBLE_EQ(collective.beta().value(), 0.75);
    }
    EXPECT_DOUBLE_EQ(scaled.inverse_time(7).value(), 49);
  }
}

TEST(CostModel, ScalesTablesWithTheirFirstEntryAsStartup) {
  CostModel costs = affine_costs(2, 0, 0);
  costs.all_reduce = CollectiveCost(CostTable({{10, Seconds(2)}, {20, Seconds(6)}}));
  // 2 to 8 workers: log2 triples; β grows by (7/8)/(1/2) = 1.75.
  const CollectiveCost scaled = costs.for_world(8).all_reduce;
  EXPECT_DOUBLE_EQ(scaled.time(10).value(), 6);
  EXPECT_DOUBLE_EQ(scaled.time(20).value(), 6 + 4 * 1.75);
}

TEST(CostModel, OneWorkerCommunicatesForNothing) {
  CostModel costs = affine_costs(4, 3, 0.5);
  costs.all_reduce = CollectiveCost(Seconds(3), Seconds(0.5), Seconds(1));
  costs.reduce = CollectiveCost(CostTable({{10, Seconds(2)}, {20, Seconds(6)}}));
  const CostModel alone = costs.for_world(1);
  EXPECT_EQ(alone.world, 1);
  EXPECT_DOUBLE_EQ(alone.all_reduce.time(100, 3).value(), 0);
  EXPECT_DOUBLE_EQ(alone.reduce.time(100, 3).value(), 0);
  EXPECT_DOUBLE_EQ(alone.broadcast.time(100, 3).value(), 0);
}

TEST(CostModel, ClusterOfOneWorkerCannotBeScaledUp) {
  EXPECT_NO_THROW(affine_costs(1, 3, 0.5).for_world(1));
  EXPECT_THROW(affine_costs(1, 3, 0.5).for_world(2), ConfigError);
}

// Two layers of (d_a, d_g) = (3, 2) and (4, 1); preconditioning is 2·d_a·d_g·(d_a+d_g) flops:
// 2·6·5 = 60 and 2·4·5 = 40. Per example: forward 10 and 30, A 5 and 15, G 1 and 4.
ModelSpec model_with_flops() {
  ModelSpec model = tiny_model({{3, 2}, {4, 1}});
  model.batch = 4;
  model.layers[0].times.reset();
  model.layers[1].times.reset();
  model.layers[0].flops = LayerFlops{Flops(10), Flops(5), Flops(1)};
  model.layers[1].flops = LayerFlops{Flops(30), Flops(15), Flops(4)};
  return model;
}

CostModel with_rates() {
  CostModel costs = affine_costs(1, 0, 0);
  costs.compute = ComputeRates{FlopsPerSecond(8), FlopsPerSecond(2), FlopsPerSecond(5)};
  return costs;
}

TEST(LayerCosts, FlopRatesCountTheWholeBatchButPreconditionOnce) {
  const auto layers = layer_costs(model_with_flops(), with_rates());
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_DOUBLE_EQ(layers[0].forward.value(), 10 * 4 / 8.0);
  EXPECT_DOUBLE_EQ(layers[0].backward.value(), 10.0);
  EXPECT_DOUBLE_EQ(layers[0].factor_a.value(), 5 * 4 / 2.0);
  EXPECT_DOUBLE_EQ(layers[0].factor_g.value(), 1 * 4 / 2.0);
  EXPECT_DOUBLE_EQ(layers[0].precondition.value(), 60 / 5.0);
  EXPECT_DOUBLE_EQ(layers[1].forward.value(), 30 * 4 / 8.0);
  EXPECT_DOUBLE_EQ(layers[1].precondition.value(), 40 / 5.0);
}

TEST(LayerCosts, TotalsSpreadByFlopsAndAddUp) {
  CostModel costs = with_rates();
  costs.models["tiny"] = {4, Seconds(24), Seconds(40)};
  const auto layers = layer_costs(model_with_flops(), costs);
  // Forward is a third of 24, by 10 : 30. Factors and preconditioning, for the batch of 4:
  // A 20 + 60, G 4 + 16, preconditioning 60 + 40, in all 200 flops in 40 s: 0.2 s each.
  EXPECT_DOUBLE_EQ(layers[0].forward.value(), 2);
  EXPECT_DOUBLE_EQ(layers[0].backward.value(), 4);
  EXPECT_DOUBLE_EQ(layers[1].forward.value(), 6);
  EXPECT_DOUBLE_EQ(layers[1].backward.value(), 12);
  EXPECT_DOUBLE_EQ(layers[0].factor_a.value(), 4);
  EXPECT_DOUBLE_EQ(layers[1].factor_a.value(), 12);
  EXPECT_DOUBLE_EQ(layers[0].factor_g.value(), 0.8);
  EXPECT_DOUBLE_EQ(layers[1].factor_g.value(), 3.2);
  EXPECT_DOUBLE_EQ(layers[0].precondition.value(), 12);
  EXPECT_DOUBLE_EQ(layers[1].precondition.value(), 8);
}

TEST(LayerCosts, TotalsOfAnotherBatchOrModelAreNotUsed) {
  const double by_rate = 10 * 4 / 8.0;
  CostModel costs = with_rates();
  costs.models["tiny"] = {5, Seconds(24), Seconds(40)};
  EXPECT_DOUBLE_EQ(layer_costs(model_with_flops(), costs)[0].forward.value(), by_rate);
  costs.models = {{"other", {4, Seconds(24), Seconds(40)}}};
  EXPECT_DOUBLE_EQ(layer_costs(model_with_flops(), costs)[0].forward.value(), by_rate);
}

TEST(LayerCosts, MeasuredTimesComeFirst) {
  ModelSpec model = model_with_flops();
  model.layers[0].times = layer_times(0.5, 1.5, 0.25, 0.125);
  model.layers[1].times = layer_times(1, 2, 3, 4);
  CostModel costs = with_rates();
  costs.models["tiny"] = {4, Seconds(24), Seconds(40)};
  const auto layers = layer_costs(model, costs);
  EXPECT_DOUBLE_EQ(layers[0].forward.value(), 0.5);
  EXPECT_DOUBLE_EQ(layers[0].backward.value(), 1.5);
  EXPECT_DOUBLE_EQ(layers[0].factor_a.value(), 0.25);
  EXPECT_DOUBLE_EQ(layers[0].factor_g.value(), 0.125);
  EXPECT_DOUBLE_EQ(layers[1].factor_g.value(), 4);
  model.layers[1].times->precondition = Seconds(5);
  EXPECT_DOUBLE_EQ(layer_costs(model, costs)[1].precondition.value(), 5);
}

TEST(LayerCosts, AMeasuredInverseStandsBesideOneByDimension) {
  ModelSpec model = tiny_model({{3, 2}}, layer_times(1, 2, 3, 4));
  const CostModel costs = affine_costs(2, 1, 1, PowerInverse{1, 2});
  EXPECT_EQ(layer_costs(model, costs)[0].inverse(FactorSide::kA), Seconds(9));
  model.layers[0].times->inverse_a = Seconds(0.5);
  EXPECT_EQ(layer_costs(model, costs)[0].inverse(FactorSide::kA), Seconds(0.5));
  EXPECT_EQ(layer_costs(model, costs)[0].inverse(FactorSide::kG), Seconds(4));
}

TEST(LayerCosts, MeasuredLayerStandsBesideOneFromRates) {
  ModelSpec model = model_with_flops();
  model.layers[0].times = layer_times(0.5, 1.5, 0.25, 0.125);
  const auto layers = layer_costs(model, with_rates());
  EXPECT_DOUBLE_EQ(layers[0].forward.value(), 0.5);
  EXPECT_DOUBLE_EQ(layers[0].precondition.value(), 60 / 5.0);
  EXPECT_DOUBLE_EQ(layers[1].forward.value(), 30 * 4 / 8.0);
}

TEST(LayerCosts, PreconditioningIsFreeWithoutRates) {
  const auto layers =
      layer_costs(tiny_model({{3, 2}}, layer_times(1, 2, 3, 4)), affine_costs(2, 1, 1));
  EXPECT_DOUBLE_EQ(layers[0].precondition.value(), 0);
}

TEST(LayerCosts, LayerThatNothingCoversIsAnErrorThatNamesIt) {
  ModelSpec model = model_with_flops();
  // Flops but neither totals nor rates.
  EXPECT_THAT(config_error([&] { layer_costs(model, affine_costs(1, 0, 0)); }),
              AllOf(HasSubstr("l0"), HasSubstr("times")));
  // Rates, but no flops to divide by them.
  model.layers[1].flops.reset();
  EXPECT_THAT(config_error([&] { layer_costs(model, with_rates()); }),
              AllOf(HasSubstr("l1"), HasSubstr("flops")));
}

// Every field that a cluster file may have.
Json full_cluster() {
  return Json::parse(R"({
    "format": "spdkfac.cluster/1", "name": "full", "world": 8,
    "collectives": {
      "all_reduce": {"alpha": 0.5, "beta": 0.25, "per_tensor": 0.125},
      "reduce": {"table": [[1, 0.5], [10, 0.75]]},
      "broadcast": {"table": [[1, 0.25]], "per_tensor": 0.5}},
    "inverse": {"kind": "table", "points": [[16, 1], [32, 2]]},
    "compute": {"forward": 1e12, "factor": 2e12, "precondition": 4e12},
    "models": {"two": {"batch": 16, "forward_backward": 3, "factors": 5}},
    "overheads": {"host_per_tensor": 0.5, "pack_per_element": 0.25, "unpack_per_element": 0.125,
                  "compute_rate_under_communication": 0.75,
                  "communication_rate_under_computation": 0.875, "unpack_on_arrival": true},
    "task_order": "factors_around_passes",
    "scaling": {"alpha": "linear"}, "nct_below": 1400, "source": "a test",
    "provenance": {"inverse": "made up"}})");
}

TEST(ClusterFile, ParsesEveryField) {
  const CostModel costs = parse_cluster(full_cluster(), "full.json");
  EXPECT_EQ(costs.name, "full");
  EXPECT_EQ(costs.world, 8);
  EXPECT_DOUBLE_EQ(costs.all_reduce.time(2, 3).value(), 0.5 + 0.25 * 2 + 0.125 * 3);
  EXPECT_DOUBLE_EQ(costs.reduce.time(10).value(), 0.75);
  EXPECT_DOUBLE_EQ(costs.broadcast.time(10, 2).value(), 0.25 + 0.5 * 2);
  EXPECT_DOUBLE_EQ(costs.inverse_time(24).value(), 1.5);
  ASSERT_TRUE(costs.compute.has_value());
  EXPECT_EQ(costs.compute->forward.value(), 1e12);
  EXPECT_EQ(costs.compute->factor.value(), 2e12);
  EXPECT_EQ(costs.compute->precondition.value(), 4e12);
  ASSERT_EQ(costs.models.count("two"), 1U);
  EXPECT_EQ(costs.models.at("two").batch, 16);
  EXPECT_EQ(costs.models.at("two").forward_backward.value(), 3);
  EXPECT_EQ(costs.models.at("two").factors.value(), 5);
  EXPECT_EQ(costs.overheads.host_per_tensor.value(), 0.5);
  EXPECT_EQ(costs.overheads.pack_per_element.value(), 0.25);
  EXPECT_EQ(costs.overheads.unpack_per_element.value(), 0.125);
  EXPECT_EQ(costs.overheads.compute_rate_under_communication, 0.75);
  EXPECT_EQ(costs.overheads.communication_rate_under_computation, 0.875);
  EXPECT_TRUE(costs.overheads.unpack_on_arrival);
  EXPECT_EQ(costs.task_order, TaskOrder::kFactorsAroundPasses);
  EXPECT_EQ(costs.alpha_scaling, AlphaScaling::kLinear);
  EXPECT_EQ(costs.nct_below, 1400);
  EXPECT_EQ(costs.source, "a test");
  EXPECT_EQ(costs.provenance.at("inverse"), "made up");
}

TEST(ClusterFile, AbsentFieldsHaveTheirDefaults) {
  Json document = full_cluster();
  for (const char* key :
       {"compute", "models", "overheads", "task_order", "scaling", "nct_below", "provenance"}) {
    document.erase(key);
  }
  const CostModel costs = parse_cluster(document, "full.json");
  EXPECT_FALSE(costs.compute.has_value());
  EXPECT_TRUE(costs.models.empty());
  EXPECT_EQ(costs.overheads.host_per_tensor.value(), 0);
  EXPECT_EQ(costs.overheads.compute_rate_under_communication, 1);
  EXPECT_EQ(costs.overheads.communication_rate_under_computation, 1);
  EXPECT_FALSE(costs.overheads.unpack_on_arrival);
  EXPECT_EQ(costs.task_order, TaskOrder::kFactorsBetweenPasses);  // the runtime's
  EXPECT_EQ(costs.alpha_scaling, AlphaScaling::kLog);
  EXPECT_FALSE(costs.nct_below.has_value());
}

TEST(ClusterFile, CostsOfAllGatherAreReadAndIgnored) {
  Json document = full_cluster();
  document["collectives"]["all_gather"] = {{"alpha", 2}, {"beta", 0}};
  EXPECT_EQ(to_json(parse_cluster(document, "old.json")).dump(),
            to_json(parse_cluster(full_cluster(), "new.json")).dump());
}

TEST(ClusterFile, JsonRoundTripKeepsEveryFieldAndEveryInverseForm) {
  for (const char* inverse :
       {R"({"kind": "table", "points": [[16, 1.0], [32, 2.0]]})",
        R"({"kind": "exponential", "alpha": 0.5, "beta": 0.0005})",
        R"({"kind": "power", "coefficient": 0.5, "exponent": 2.5})",
        R"({"kind": "cubic", "c0": 0.5, "c1": 0.25, "c2": 0.0, "c3": 0.125})"}) {
    Json document = full_cluster();
    document["inverse"] = Json::parse(inverse);
    const CostModel once = parse_cluster(document, "once");
    const CostModel twice = parse_cluster(to_json(once), "twice");
    EXPECT_EQ(to_json(once).dump(), to_json(twice).dump());
    EXPECT_DOUBLE_EQ(once.inverse_time(20).value(), twice.inverse_time(20).value());
    // Equal to the document, not counting the order of keys.
    EXPECT_EQ(nlohmann::json::parse(to_json(once).dump()), nlohmann::json::parse(document.dump()));
  }
}

struct BrokenCluster {
  const char* name;
  std::function<void(Json&)> apply;
  const char* place;
};
void PrintTo(const BrokenCluster& damage, std::ostream* out) { *out << damage.name; }

class ParseClusterRejects : public ::testing::TestWithParam<BrokenCluster> {};

TEST_P(ParseClusterRejects, WithTheFieldsPath) {
  Json document = full_cluster();
  GetParam().apply(document);
  EXPECT_THAT(config_error([&] { parse_cluster(document, "c.json"); }),
              AllOf(StartsWith("c.json: "), HasSubstr(GetParam().place)));
}

INSTANTIATE_TEST_SUITE_P(
    Damages, ParseClusterRejects,
    ::testing::Values(
        BrokenCluster{"OtherFormat", [](Json& d) { d["format"] = "spdkfac.model/1"; }, "format"},
        BrokenCluster{"UnknownField", [](Json& d) { d["colour"] = 1; }, "colour"},
        BrokenCluster{"ZeroWorld", [](Json& d) { d["world"] = 0; }, "world"},
        BrokenCluster{"MissingCollective", [](Json& d) { d["collectives"].erase("reduce"); },
                      "reduce"},
        BrokenCluster{"BadCostsOfAllGather",
                      [](Json& d) {
                        d["collectives"]["all_gather"] = {{"alpha", -1}, {"beta", 0}};
                      },
                      "collectives.all_gather.alpha"},
        BrokenCluster{"NegativeAlpha",
                      [](Json& d) { d["collectives"]["all_reduce"]["alpha"] = -1; },
                      "collectives.all_reduce.alpha"},
        BrokenCluster{"AlphaBesideTable", [](Json& d) { d["collectives"]["reduce"]["alpha"] = 1; },
                      "collectives.reduce"},
        BrokenCluster{"EmptyTable",
                      [](Json& d) { d["collectives"]["reduce"]["table"] = Json::array(); },
                      "collectives.reduce.table"},
        BrokenCluster{"TableSizesNotIncreasing",
                      [](Json& d) { d["collectives"]["reduce"]["table"][1][0] = 1; },
                      "collectives.reduce.table"},
        BrokenCluster{"TableTimesDecreasing",
                      [](Json& d) { d["collectives"]["reduce"]["table"][1][1] = 0.25; },
                      "collectives.reduce.table"},
        BrokenCluster{"OtherInverse", [](Json& d) { d["inverse"]["kind"] = "magic"; },
                      "inverse.kind"},
        BrokenCluster{"ZeroRate", [](Json& d) { d["compute"]["factor"] = 0; }, "compute.factor"},
        BrokenCluster{"ComputeFasterUnderCommunication",
                      [](Json& d) { d["overheads"]["compute_rate_under_communication"] = 1.5; },
                      "overheads.compute_rate_under_communication"},
        BrokenCluster{"ComputeStopsUnderCommunication",
                      [](Json& d) { d["overheads"]["compute_rate_under_communication"] = 0; },
                      "overheads.compute_rate_under_communication"},
        BrokenCluster{"MessagesFasterUnderComputation",
                      [](Json& d) { d["overheads"]["communication_rate_under_computation"] = 1.5; },
                      "overheads.communication_rate_under_computation"},
        BrokenCluster{"MessagesStopUnderComputation",
                      [](Json& d) { d["overheads"]["communication_rate_under_computation"] = 0; },
                      "overheads.communication_rate_under_computation"},
        BrokenCluster{"ArrivalIsAText",
                      [](Json& d) { d["overheads"]["unpack_on_arrival"] = "yes"; },
                      "overheads.unpack_on_arrival"},
        BrokenCluster{
            "OtherTaskOrder", [](Json& d) { d["task_order"] = "factors_first"; },
            R"(task_order: expected one of "factors_between_passes", "factors_around_passes")"},
        BrokenCluster{"TaskOrderIsANumber", [](Json& d) { d["task_order"] = 1; }, "task_order"},
        BrokenCluster{"OtherScaling", [](Json& d) { d["scaling"]["alpha"] = "cubic"; },
                      "scaling.alpha"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ClusterFile, TheThreeClustersCoverTheFourModels) {
  const std::string data = SPDKFAC_SOURCE_DIR "/data";
  for (const char* cluster : {"ethernet-10g-16", "h200-400g-64", "paper-64x2080ti"}) {
    const CostModel costs = read_cluster(data + "/clusters/" + cluster + ".json");
    EXPECT_EQ(costs.name, cluster);
    // Fitted with that order; the others follow the runtime.
    EXPECT_EQ(costs.task_order == TaskOrder::kFactorsAroundPasses, costs.name == "paper-64x2080ti");
    for (const char* name : {"resnet50", "resnet152", "densenet201", "inception-v4"}) {
      const ModelSpec model = read_model(data + "/models/" + name + ".json");
      const auto layers = layer_costs(model, costs);
      ASSERT_EQ(layers.size(), model.layers.size());
      if (costs.models.empty()) continue;
      // The paper's cluster knows totals: they are what the layers add up to.
      double forward_backward = 0;
      double factors = 0;
      for (const LayerCosts& layer : layers) {
        forward_backward += layer.forward.value() + layer.backward.value();
        factors += layer.factor_a.value() + layer.factor_g.value() + layer.precondition.value();
      }
      EXPECT_NEAR(forward_backward, costs.models.at(name).forward_backward.value(), 1e-12);
      EXPECT_NEAR(factors, costs.models.at(name).factors.value(), 1e-12);
    }
  }
}

}  // namespace
}  // namespace spdkfac
