// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/layer_spec.h"

#include <functional>
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/error.h"
#include "spdkfac/plan/model_file.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using support::config_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A convolution without bias followed by BatchNorm, and a linear layer with bias:
// 18·4 + 4 + 4 + 10·4 + 4 = 124 parameters; d_a of the linear layer counts the bias column.
Json two_layers() {
  return Json::parse(R"({
    "format": "spdkfac.model/1", "name": "two", "batch": 8, "input": [2, 5, 5], "parameters": 124,
    "layers": [
      {"name": "conv", "kind": "conv2d", "d_a": 18, "d_g": 4, "bias": false, "positions": 9,
       "gradients": [72, 4, 4],
       "flops": {"forward": 1296, "factor_a": 5832, "factor_g": 288}},
      {"name": "fc", "kind": "linear", "d_a": 11, "d_g": 4, "bias": true, "positions": 1,
       "gradients": [40, 4],
       "flops": {"forward": 88, "factor_a": 242, "factor_g": 32},
       "times": {"forward": 0.5, "backward": 1.25, "factor_a": 0.25, "factor_g": 0.125,
                 "precondition": 0.0625, "inverse_a": 0.75, "inverse_g": 0.375}}
    ]})");
}

// Equality of JSON values, not of the order of keys.
nlohmann::json unordered(const Json& json) { return nlohmann::json::parse(json.dump()); }

TEST(LayerSpec, PackedElementsAreTheUpperTriangleWithDiagonal) {
  EXPECT_EQ(packed_elements(1), 1);
  EXPECT_EQ(packed_elements(4), 4 + 3 + 2 + 1);
  // No overflow of 32 bits: 100000·100001/2.
  EXPECT_EQ(packed_elements(100000), 5000050000);
}

TEST(LayerSpec, ParsesEveryField) {
  const ModelSpec model = parse_model(two_layers(), "two.json");
  EXPECT_EQ(model.name, "two");
  EXPECT_EQ(model.batch, 8);
  EXPECT_THAT(model.input, ElementsAre(2, 5, 5));
  EXPECT_EQ(model.parameters, 124);
  ASSERT_EQ(model.layers.size(), 2U);

  const LayerSpec& conv = model.layers[0];
  EXPECT_EQ(conv.name, "conv");
  EXPECT_EQ(conv.kind, LayerKind::kConv2d);
  EXPECT_EQ(conv.d_a, 18);
  EXPECT_EQ(conv.d_g, 4);
  EXPECT_FALSE(conv.bias);
  EXPECT_EQ(conv.positions, 9);
  EXPECT_THAT(conv.gradients, ElementsAre(72, 4, 4));
  ASSERT_TRUE(conv.flops.has_value());
  EXPECT_EQ(conv.flops->forward.value(), 1296);
  EXPECT_EQ(conv.flops->factor_a.value(), 5832);
  EXPECT_EQ(conv.flops->factor_g.value(), 288);
  EXPECT_FALSE(conv.times.has_value());

  const LayerSpec& fc = model.layers[1];
  EXPECT_EQ(fc.kind, LayerKind::kLinear);
  EXPECT_TRUE(fc.bias);
  ASSERT_TRUE(fc.times.has_value());
  EXPECT_EQ(fc.times->forward.value(), 0.5);
  EXPECT_EQ(fc.times->backward.value(), 1.25);
  EXPECT_EQ(fc.times->factor_a.value(), 0.25);
  EXPECT_EQ(fc.times->factor_g.value(), 0.125);
  EXPECT_EQ(fc.times->precondition, Seconds(0.0625));
  EXPECT_EQ(fc.times->inverse_a, Seconds(0.75));
  EXPECT_EQ(fc.times->inverse_g, Seconds(0.375));
}

TEST(LayerSpec, CountsOwnAndFollowingGradients) {
  const ModelSpec model = parse_model(two_layers(), "two.json");
  EXPECT_EQ(model.layers[0].own_tensors(), 1U);
  EXPECT_EQ(model.layers[0].own_elements(), 18 * 4);
  EXPECT_EQ(model.layers[0].gradient_elements(), 72 + 4 + 4);
  EXPECT_EQ(model.layers[1].own_tensors(), 2U);
  EXPECT_EQ(model.layers[1].own_elements(), 11 * 4);
  EXPECT_EQ(model.layers[1].gradient_elements(), 40 + 4);
}

TEST(LayerSpec, JsonRoundTripKeepsEveryField) {
  const Json document = two_layers();
  EXPECT_EQ(unordered(to_json(parse_model(document, "two.json"))), unordered(document));
}

struct BrokenModel {
  const char* name;
  std::function<void(Json&)> apply;
  const char* place;  // expected in the message
};
void PrintTo(const BrokenModel& damage, std::ostream* out) { *out << damage.name; }

class ParseModelRejects : public ::testing::TestWithParam<BrokenModel> {};

TEST_P(ParseModelRejects, WithTheFieldsPath) {
  Json document = two_layers();
  GetParam().apply(document);
  EXPECT_THAT(config_error([&] { parse_model(document, "two.json"); }),
              AllOf(StartsWith("two.json: "), HasSubstr(GetParam().place)));
}

INSTANTIATE_TEST_SUITE_P(
    Damages, ParseModelRejects,
    ::testing::Values(
        BrokenModel{"OtherFormat", [](Json& d) { d["format"] = "spdkfac.model/2"; }, "format"},
        BrokenModel{"NoName", [](Json& d) { d.erase("name"); }, "name"},
        BrokenModel{"EmptyName", [](Json& d) { d["name"] = ""; }, "name"},
        BrokenModel{"UnknownField", [](Json& d) { d["colour"] = 1; }, "colour"},
        BrokenModel{"UnknownLayerField", [](Json& d) { d["layers"][1]["colour"] = 1; },
                    "layers[1]"},
        BrokenModel{"UnknownFlopsField", [](Json& d) { d["layers"][0]["flops"]["colour"] = 1; },
                    "layers[0].flops"},
        BrokenModel{"ZeroBatch", [](Json& d) { d["batch"] = 0; }, "batch"},
        BrokenModel{"NegativeInput", [](Json& d) { d["input"][1] = -5; }, "input[1]"},
        BrokenModel{"NoLayers", [](Json& d) { d["layers"] = Json::array(); }, "layers"},
        BrokenModel{"OtherKind", [](Json& d) { d["layers"][0]["kind"] = "conv4d"; },
                    "layers[0].kind"},
        BrokenModel{"ZeroDimension", [](Json& d) { d["layers"][0]["d_a"] = 0; }, "layers[0].d_a"},
        BrokenModel{"FractionalDimension", [](Json& d) { d["layers"][0]["d_g"] = 4.5; },
                    "layers[0].d_g"},
        BrokenModel{"DimensionAsText", [](Json& d) { d["layers"][1]["d_g"] = "4"; },
                    "layers[1].d_g"},
        BrokenModel{"BiasAsNumber", [](Json& d) { d["layers"][1]["bias"] = 1; }, "layers[1].bias"},
        BrokenModel{"NegativeGradient", [](Json& d) { d["layers"][0]["gradients"][2] = -4; },
                    "layers[0].gradients[2]"},
        BrokenModel{"NoGradients", [](Json& d) { d["layers"][0]["gradients"] = Json::array(); },
                    "layers[0].gradients"},
        BrokenModel{"OwnGradientOfAnotherSize",
                    [](Json& d) {
                      d["layers"][0]["gradients"][0] = 71;
                      d["parameters"] = 123;
                    },
                    "layers[0].gradients"},
        BrokenModel{"ParametersDoNotAddUp", [](Json& d) { d["parameters"] = 125; }, "parameters"},
        BrokenModel{"NegativeFlops", [](Json& d) { d["layers"][0]["flops"]["forward"] = -1; },
                    "layers[0].flops.forward"},
        BrokenModel{"NegativeTime", [](Json& d) { d["layers"][1]["times"]["backward"] = -0.5; },
                    "layers[1].times.backward"},
        BrokenModel{"MissingTime", [](Json& d) { d["layers"][1]["times"].erase("factor_g"); },
                    "factor_g"}),
    [](const auto& test) { return std::string(test.param.name); });

struct KnownModel {
  const char* name;
  std::size_t layers;
  double a_millions;  // elements in the upper triangles of all A
  double g_millions;
};
void PrintTo(const KnownModel& model, std::ostream* out) { *out << model.name; }

class ModelFile : public ::testing::TestWithParam<KnownModel> {};

// Layers and sizes are those of the paper's table of models; half a thousand is their rounding.
TEST_P(ModelFile, HasTheKnownTotals) {
  const KnownModel& known = GetParam();
  const ModelSpec model =
      read_model(std::string(SPDKFAC_SOURCE_DIR) + "/data/models/" + known.name + ".json");
  EXPECT_EQ(model.name, known.name);
  EXPECT_EQ(model.layers.size(), known.layers);
  std::int64_t a = 0;
  std::int64_t g = 0;
  std::int64_t parameters = 0;
  for (const LayerSpec& layer : model.layers) {
    a += layer.d_a * (layer.d_a + 1) / 2;
    g += layer.d_g * (layer.d_g + 1) / 2;
    for (const std::int64_t elements : layer.gradients) parameters += elements;
  }
  EXPECT_NEAR(static_cast<double>(a) / 1e6, known.a_millions, 5e-4);
  EXPECT_NEAR(static_cast<double>(g) / 1e6, known.g_millions, 5e-4);
  EXPECT_EQ(parameters, model.parameters);
}

INSTANTIATE_TEST_SUITE_P(Data, ModelFile,
                         ::testing::Values(KnownModel{"resnet50", 54, 62.349, 14.618},
                                           KnownModel{"resnet152", 156, 161.955, 32.927},
                                           KnownModel{"densenet201", 201, 130.961, 1.806},
                                           KnownModel{"inception-v4", 150, 116.415, 4.696}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::erase(name, '-');
                           return name;
                         });

TEST(LayerSpec, Resnet50HasItsKnownNumberOfParameters) {
  const ModelSpec model =
      read_model(std::string(SPDKFAC_SOURCE_DIR) + "/data/models/resnet50.json");
  EXPECT_EQ(model.parameters, 25557032);
}

TEST(LayerSpec, MissingFileIsAConfigErrorThatNamesIt) {
  EXPECT_THAT(config_error([] { read_model("/nonexistent/model.json"); }),
              HasSubstr("/nonexistent/model.json"));
}

}  // namespace
}  // namespace spdkfac
