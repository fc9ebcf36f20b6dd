// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/describe.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "spdkfac/models/model.h"
#include "spdkfac/plan/model_file.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

namespace nn = torch::nn;
using support::expect_config_error;

ModelSpec describe_model(const std::string& name, const models::ModelOptions& options = {}) {
  const auto model = models::make_model(name, options);
  const models::ModelInfo& info = models::model_info(name);
  return describe(
      name, *model, [&](at::Tensor x) { return model->forward(std::move(x)); }, info.batch,
      info.input);
}

class DescribeTable : public testing::TestWithParam<std::string> {};

TEST_P(DescribeTable, EqualsTheBundledTableFieldForField) {
  const ModelSpec expected =
      read_model(std::string(SPDKFAC_SOURCE_DIR) + "/data/models/" + GetParam() + ".json");
  const ModelSpec actual = describe_model(GetParam());
  ASSERT_EQ(actual.layers.size(), expected.layers.size());
  for (std::size_t layer = 0; layer < expected.layers.size(); ++layer) {
    ModelSpec one = actual;
    ModelSpec other = expected;
    one.layers = {actual.layers[layer]};
    other.layers = {expected.layers[layer]};
    EXPECT_EQ(to_json(one), to_json(other)) << "layer " << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(FourModels, DescribeTable,
                         testing::Values("resnet50", "resnet152", "densenet201", "inception-v4"));

// Million elements of the upper triangles of A and G, from the paper's table of models; its 18.0
// for G of DenseNet-201 is a misprint of 1.8.
TEST(Describe, CountsThePapersElements) {
  const std::map<std::string, std::pair<double, double>> paper = {{"resnet50", {62.3, 14.6}},
                                                                  {"resnet152", {162.0, 32.9}},
                                                                  {"densenet201", {131.0, 1.8}},
                                                                  {"inception-v4", {116.4, 4.7}}};
  for (const auto& [name, millions] : paper) {
    double a = 0;
    double g = 0;
    for (const LayerSpec& layer : describe_model(name).layers) {
      a += static_cast<double>(packed_elements(layer.d_a)) / 1e6;
      g += static_cast<double>(packed_elements(layer.d_g)) / 1e6;
    }
    EXPECT_NEAR(a, millions.first, 0.06) << name;
    EXPECT_NEAR(g, millions.second, 0.06) << name;
  }
}

TEST(Describe, AQuarterWidthResNet50KeepsItsLayers) {
  const ModelSpec spec = describe_model("resnet50", {.width = 0.25});
  EXPECT_EQ(spec.layers.size(), 54);
  EXPECT_EQ(spec.layers[0].d_g, 16);
}

TEST(Describe, WorksOnAModelOfSomeoneElse) {
  nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(1, 2, 3)), nn::BatchNorm2d(2), nn::ReLU{},
                       nn::Flatten{}, nn::Linear(nn::LinearOptions(2 * 3 * 3, 4).bias(false)));
  const ModelSpec spec =
      describe("mine", *model, [&](at::Tensor x) { return model->forward(x); }, 7, {1, 5, 5});
  ASSERT_EQ(spec.layers.size(), 2);
  EXPECT_EQ(spec.name, "mine");
  EXPECT_EQ(spec.batch, 7);
  EXPECT_EQ(spec.parameters, 2 * 9 + 2 + 2 + 2 + 18 * 4);
  EXPECT_EQ(spec.layers[0].d_a, 10);
  EXPECT_EQ(spec.layers[0].positions, 9);
  EXPECT_THAT(spec.layers[0].gradients, testing::ElementsAre(18, 2, 2, 2));
  EXPECT_THAT(spec.layers[1].gradients, testing::ElementsAre(72));
  EXPECT_EQ(spec.layers[1].kind, LayerKind::kLinear);
  // What it did to the batch statistics was undone.
  EXPECT_TRUE(model->named_buffers()["1.running_mean"].eq(0).all().item<bool>());
}

TEST(Describe, CountsAllUsesOfALayer) {
  nn::Linear layer(3, 3);
  const ModelSpec spec =
      describe("twice", *layer, [&](at::Tensor x) { return layer(layer(x)); }, 1, {5, 2, 3});
  ASSERT_EQ(spec.layers.size(), 1);
  EXPECT_EQ(spec.layers[0].positions, 2 * 5 * 2);
}

TEST(Describe, KnowsGroupsAndFactorsThatAreSplit) {
  nn::Conv2d grouped(nn::Conv2dOptions(4, 6, 3).groups(2));
  const auto table = [&](const FactorLimit& limit) {
    return describe(
               "g", *grouped, [&](at::Tensor x) { return grouped(x); }, 1, {4, 5, 5}, limit)
        .layers.at(0);
  };
  const LayerSpec whole = table({});
  EXPECT_EQ(whole.shape(FactorSide::kA), (FactorShape{2 * 9 + 1, 2}));
  EXPECT_EQ(whole.shape(FactorSide::kG), (FactorShape{3, 2}));
  EXPECT_EQ(whole.own_elements(), 6 * 2 * 9 + 6);
  // Two groups, 9 positions: products of 19 and of 3 values, each with each.
  EXPECT_EQ(whole.flops->factor_a, Flops(2.0 * 9 * 2 * 19 * 19));
  EXPECT_EQ(whole.flops->factor_g, Flops(2.0 * 9 * 2 * 3 * 3));
  EXPECT_EQ(whole.flops->forward, Flops(2.0 * 9 * 6 * 2 * 9));
  const LayerSpec split = table({10, LargeFactors::kDiagonal});
  EXPECT_EQ(split.shape(FactorSide::kA), (FactorShape{19, 2, 19}));
  EXPECT_EQ(split.flops->factor_a, Flops(2.0 * 9 * 2 * 19));
}

TEST(Describe, RefusesWhatATableCannotHold) {
  nn::Sequential unused(nn::Linear(2, 2), nn::Linear(2, 2));
  expect_config_error(
      [&] {
        describe("u", *unused,
                 [&](at::Tensor x) { return unused->ptr<nn::LinearImpl>(0)->forward(x); }, 1,
                 {1, 1, 2});
      },
      "calls only 1 of 2");
}

}  // namespace
}  // namespace spdkfac
