// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "spdkfac/models/model.h"
#include "spdkfac/plan/layer_spec.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using support::config_error;
using testing::ElementsAre;
using testing::HasSubstr;

bool has_factors(const torch::nn::Module& module) {
  return module.as<torch::nn::Conv2d>() != nullptr || module.as<torch::nn::Linear>() != nullptr;
}

std::int64_t parameters(const models::Model& model) {
  std::int64_t sum = 0;
  for (const torch::Tensor& parameter : model.parameters()) sum += parameter.numel();
  return sum;
}

// What the model's modules say about its layers: all fields that need no forward pass.
std::vector<LayerSpec> layers_of(const models::Model& model) {
  std::vector<LayerSpec> layers;
  for (const auto& module : model.named_modules()) {
    const auto own = module.value()->named_parameters(/*recurse=*/false);
    if (has_factors(*module.value())) {
      const torch::Tensor weight = own["weight"];
      LayerSpec layer;
      layer.name = module.key();
      layer.kind = weight.dim() == 4 ? LayerKind::kConv2d : LayerKind::kLinear;
      layer.bias = own.contains("bias");
      layer.d_g = weight.size(0);
      layer.d_a = weight[0].numel() + (layer.bias ? 1 : 0);
      layers.push_back(layer);
    }
    for (const auto& parameter : own) layers.back().gradients.push_back(parameter->numel());
  }
  return layers;
}

ModelSpec table_of(const std::string& name) {
  const std::filesystem::path root = SPDKFAC_SOURCE_DIR;
  return read_model(root / "data/models" / (name + ".json"));
}

torch::Tensor images(const models::ModelInfo& info, std::int64_t side, std::int64_t count = 2) {
  return torch::randn({count, info.input[0], side, side});
}

// Small enough to be fast, large enough that no batch normalisation sees a single value.
std::int64_t small_side(const std::string& name) {
  if (name == "inception-v4") return 96;
  return name == "cnn28" ? 28 : 32;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const models::ModelInfo& info : models::model_infos()) names.push_back(info.name);
  return names;
}

// GoogleTest takes letters and digits only.
std::string test_name(const testing::TestParamInfo<std::string>& parameter) {
  std::string name = parameter.param;
  std::erase(name, '-');
  return name;
}

class EveryModel : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, EveryModel, testing::ValuesIn(all_names()), test_name);

TEST_P(EveryModel, GivesOneRowOfLogitsPerImage) {
  const models::ModelInfo& info = models::model_info(GetParam());
  const auto model = models::make_model(info.name, {.width = 0.125});
  const torch::Tensor logits = model->forward(images(info, small_side(info.name), 3));
  EXPECT_THAT(logits.sizes().vec(), ElementsAre(3, info.classes));
}

TEST_P(EveryModel, TakesOtherClassesAndChannels) {
  const models::ModelInfo& info = models::model_info(GetParam());
  const auto model = models::make_model(info.name, {.width = 0.125, .classes = 7, .channels = 2});
  const std::int64_t side = small_side(info.name);
  EXPECT_THAT(model->forward(torch::randn({2, 2, side, side})).sizes().vec(), ElementsAre(2, 7));
}

TEST_P(EveryModel, GivesEveryParameterAFiniteGradient) {
  const models::ModelInfo& info = models::model_info(GetParam());
  torch::manual_seed(1);
  const auto model = models::make_model(info.name, {.width = 0.125});
  const torch::Tensor logits = model->forward(images(info, small_side(info.name)));
  torch::nn::functional::cross_entropy(logits, torch::tensor({0, 1})).backward();
  for (const auto& parameter : model->named_parameters()) {
    const torch::Tensor gradient = parameter.value().grad();
    ASSERT_TRUE(gradient.defined()) << parameter.key();
    EXPECT_TRUE(torch::isfinite(gradient).all().item<bool>()) << parameter.key();
  }
}

TEST_P(EveryModel, HasTheSameWeightsForTheSameSeed) {
  const auto weights = [&](std::uint64_t seed) {
    torch::manual_seed(seed);
    std::vector<torch::Tensor> flat;
    for (const torch::Tensor& p : models::make_model(GetParam(), {.width = 0.125})->parameters()) {
      flat.push_back(p.detach().flatten());
    }
    return torch::cat(flat);
  };
  const torch::Tensor first = weights(1);
  EXPECT_TRUE(torch::equal(first, weights(1)));
  EXPECT_FALSE(torch::equal(first, weights(2)));
}

TEST_P(EveryModel, KeepsItsLayersAtTheSmallestWidth) {
  // Every hidden layer has as few channels as can be; rounding must not drop a way around a block.
  const auto full = layers_of(*models::make_model(GetParam()));
  const auto least = layers_of(*models::make_model(GetParam(), {.width = 1e-6}));
  ASSERT_EQ(least.size(), full.size());
  for (std::size_t l = 0; l < full.size(); ++l) EXPECT_EQ(least[l].name, full[l].name);
  EXPECT_EQ(least.back().d_g, full.back().d_g);
}

class TabulatedModel : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, TabulatedModel,
                         testing::Values("resnet50", "resnet152", "densenet201", "inception-v4"),
                         test_name);

TEST_P(TabulatedModel, HasTheLayersOfItsTable) {
  const ModelSpec table = table_of(GetParam());
  const auto model = models::make_model(GetParam());
  EXPECT_EQ(parameters(*model), table.parameters);
  const std::vector<LayerSpec> layers = layers_of(*model);
  ASSERT_EQ(layers.size(), table.layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    SCOPED_TRACE(table.layers[l].name);
    EXPECT_EQ(layers[l].name, table.layers[l].name);
    EXPECT_EQ(layers[l].kind, table.layers[l].kind);
    EXPECT_EQ(layers[l].d_a, table.layers[l].d_a);
    EXPECT_EQ(layers[l].d_g, table.layers[l].d_g);
    EXPECT_EQ(layers[l].bias, table.layers[l].bias);
    EXPECT_EQ(layers[l].gradients, table.layers[l].gradients);
  }
}

TEST_P(TabulatedModel, IsMadeForTheInputAndBatchOfItsTable) {
  const ModelSpec table = table_of(GetParam());
  const models::ModelInfo& info = models::model_info(GetParam());
  EXPECT_EQ(info.input, table.input);
  EXPECT_EQ(info.batch, table.batch);
}

TEST(Models, CountTheParametersOfTheirPapers) {
  // conv1 9·32 + 32, conv2 9·32·64 + 64, fc1 3136·128 + 128, fc2 128·10 + 10.
  EXPECT_EQ(parameters(*models::make_model("cnn28")), 320 + 18496 + 401536 + 1290);
  // The 269 722 of ResNet-20 with plain shortcuts, and two 1×1 convolutions with normalisation.
  EXPECT_EQ(parameters(*models::make_model("resnet20")), 269722 + (16 * 32 + 64) + (32 * 64 + 128));
  EXPECT_EQ(parameters(*models::make_model("resnet18")), 11689512);  // torchvision's
}

TEST(Models, MultiplyHiddenChannelsByTheWidth) {
  const auto quarter = layers_of(*models::make_model("resnet50", {.width = 0.25}));
  ASSERT_EQ(quarter.size(), 54u);
  EXPECT_EQ(quarter.front().d_a, 3 * 49);  // the image keeps its channels
  EXPECT_EQ(quarter.front().d_g, 16);
  EXPECT_EQ(quarter.back().d_a, 2048 / 4 + 1);
  EXPECT_EQ(quarter.back().d_g, 1000);  // and the classes their number

  const auto wide = layers_of(*models::make_model("cnn28", {.width = 1.5}));
  EXPECT_EQ(wide[0].d_g, 48);
  EXPECT_EQ(wide[1].d_g, 96);
  EXPECT_EQ(wide[2].d_a, 96 * 49 + 1);
  EXPECT_EQ(wide[2].d_g, 192);

  // Sums and halves of scaled channels: the end scales as well, from 1920 and 1536.
  EXPECT_EQ(layers_of(*models::make_model("densenet201", {.width = 0.5})).back().d_a, 960 + 1);
  EXPECT_EQ(layers_of(*models::make_model("inception-v4", {.width = 0.5})).back().d_a, 768 + 1);
}

TEST(Models, TakeImagesOfOtherSizes) {
  const auto logits = [](const std::string& name, std::int64_t height, std::int64_t width) {
    const models::ModelInfo& info = models::model_info(name);
    const auto model = models::make_model(name, {.width = 0.125});
    return model->forward(torch::randn({2, info.input[0], height, width})).sizes().vec();
  };
  EXPECT_THAT(logits("resnet20", 28, 28), ElementsAre(2, 10));
  EXPECT_THAT(logits("resnet20", 32, 32), ElementsAre(2, 10));
  EXPECT_THAT(logits("resnet50", 64, 96), ElementsAre(2, 1000));
  EXPECT_THAT(logits("densenet201", 64, 80), ElementsAre(2, 1000));
  EXPECT_THAT(logits("inception-v4", 96, 128), ElementsAre(2, 1000));
  EXPECT_EQ(config_error([&] { logits("cnn28", 32, 32); }),
            "model: cnn28 takes images of 28x28 (got a tensor [2, 1, 32, 32]); resize them, or use "
            "resnet20");
}

TEST(Models, StartWithTheWeightsOfHe) {
  torch::manual_seed(1);
  // Fan out of layer1.0.conv2 of resnet50: 64 · 9 values, variance 2/576.
  const auto resnet = models::make_model("resnet50")->named_parameters();
  EXPECT_NEAR(resnet["layer1.0.conv2.weight"].std().item<double>(), std::sqrt(2.0 / 576), 1e-3);
  EXPECT_TRUE(resnet["bn1.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(resnet["bn1.bias"].eq(0).all().item<bool>());
  // Fan in of conv2 of a dense layer: 128 · 9 values.
  const auto densenet = models::make_model("densenet201")->named_parameters();
  EXPECT_NEAR(densenet["features.denseblock1.denselayer1.conv2.weight"].std().item<double>(),
              std::sqrt(2.0 / 1152), 1e-3);
  EXPECT_TRUE(densenet["classifier.bias"].eq(0).all().item<bool>());
}

TEST(Models, RefuseUnknownNames) {
  const std::string message =
      "model: unknown name \"resnet51\"; did you mean resnet50? choose one of resnet18, resnet50, "
      "resnet152, densenet201, "
      "inception-v4, cnn28, resnet20";
  EXPECT_EQ(config_error([] { models::make_model("resnet51"); }), message);
  EXPECT_EQ(config_error([] { models::model_info("resnet51"); }), message);
}

TEST(Models, RefuseBadOptions) {
  const auto error = [](const models::ModelOptions& options) {
    return config_error([&] { models::make_model("cnn28", options); });
  };
  EXPECT_EQ(error({.width = 0}),
            "model: width=0 is out of range; pass a number above 0 and at most 16");
  EXPECT_THAT(error({.width = -1}), HasSubstr("model: width=-1 is"));
  EXPECT_THAT(error({.width = 16.5}), HasSubstr("model: width=16.5 is"));
  EXPECT_THAT(error({.width = std::numeric_limits<double>::quiet_NaN()}), HasSubstr("width=nan"));
  EXPECT_EQ(error({.classes = -1}),
            "model: classes=-1 is out of range; pass 1 to 1000000, or 0 for the model's own");
  EXPECT_THAT(error({.classes = 1'000'001}), HasSubstr("model: classes=1000001 is"));
  EXPECT_EQ(error({.channels = 4097}),
            "model: channels=4097 is out of range; pass 1 to 4096, or 0 for the model's own");
}

}  // namespace
}  // namespace spdkfac
