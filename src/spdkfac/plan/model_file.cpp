// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/model_file.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac {
namespace {

constexpr const char* kModelFormat = "spdkfac.model/1";
// Keeps every product of sizes far below 2^63.
constexpr std::int64_t kMaxDimension = 1'000'000;
constexpr std::int64_t kMaxSize = 1'000'000'000'000;
constexpr double kMaxFlops = 1e18;
// A day: longer single operations are a unit mistake, and keep sums of times finite.
constexpr double kMaxSeconds = 86400;

LayerFlops parse_flops(const JsonValue& value) {
  JsonObject object(value);
  LayerFlops flops{.forward = Flops(object.required("forward").number(0, kMaxFlops)),
                   .factor_a = Flops(object.required("factor_a").number(0, kMaxFlops)),
                   .factor_g = Flops(object.required("factor_g").number(0, kMaxFlops))};
  object.finish();
  return flops;
}

struct OptionalTime {
  const char* name;
  std::optional<Seconds> LayerTimes::*time;
};
constexpr OptionalTime kOptionalTimes[] = {{"precondition", &LayerTimes::precondition},
                                           {"inverse_a", &LayerTimes::inverse_a},
                                           {"inverse_g", &LayerTimes::inverse_g}};

LayerTimes parse_times(const JsonValue& value) {
  JsonObject object(value);
  LayerTimes times{.forward = Seconds(object.required("forward").number(0, kMaxSeconds)),
                   .backward = Seconds(object.required("backward").number(0, kMaxSeconds)),
                   .factor_a = Seconds(object.required("factor_a").number(0, kMaxSeconds)),
                   .factor_g = Seconds(object.required("factor_g").number(0, kMaxSeconds))};
  for (const auto& [name, time] : kOptionalTimes) {
    if (const auto seconds = object.optional(name)) {
      times.*time = Seconds(seconds->number(0, kMaxSeconds));
    }
  }
  object.finish();
  return times;
}

LayerSpec parse_layer(const JsonValue& value) {
  JsonObject object(value);
  LayerSpec layer;
  layer.name = parse_name(object.required("name"));
  layer.kind = static_cast<LayerKind>(object.required("kind").choice(layer_kind_names()));
  layer.d_a = object.required("d_a").integer(1, kMaxDimension);
  layer.d_g = object.required("d_g").integer(1, kMaxDimension);
  const auto count = [&](const char* name) {
    const auto number = object.optional(name);
    return number ? number->integer(1, kMaxDimension) : 1;
  };
  layer.groups = count("groups");
  layer.blocks_a = count("blocks_a");
  layer.blocks_g = count("blocks_g");
  layer.bias = object.required("bias").boolean();
  layer.positions = object.required("positions").integer(1, kMaxSize);
  const JsonValue gradients = object.required("gradients");
  std::int64_t rest = kMaxSize;
  for (const JsonValue& size : gradients.array()) {
    layer.gradients.push_back(size.integer(1, kMaxSize));
    rest -= layer.gradients.back();
    if (rest < 0) {
      gradients.fail(fmt::format("the sizes add up to more than {}; correct them", kMaxSize));
    }
  }
  if (const auto flops = object.optional("flops")) layer.flops = parse_flops(*flops);
  if (const auto times = object.optional("times")) layer.times = parse_times(*times);
  object.finish();

  for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
    if (const FactorShape shape = layer.shape(side); !shape.is_valid()) {
      object.fail(fmt::format("a factor of {} rows has no {} blocks of one dimension; correct {}",
                              shape.size, shape.blocks,
                              side == FactorSide::kA ? "blocks_a" : "blocks_g"));
    }
  }
  if (layer.gradients.size() < layer.own_tensors()) {
    gradients.fail(fmt::format("expected {} or more sizes for a layer {} bias (got {})",
                               layer.own_tensors(), layer.bias ? "with" : "without",
                               layer.gradients.size()));
  }
  const std::int64_t own = std::accumulate(
      layer.gradients.begin(),
      layer.gradients.begin() + static_cast<std::ptrdiff_t>(layer.own_tensors()), std::int64_t{0});
  if (own != layer.own_elements()) {
    gradients.fail(
        fmt::format("the layer's own gradients must have groups·d_a·d_g = {} elements (got {}); "
                    "correct the sizes, groups, d_a or d_g",
                    layer.own_elements(), own));
  }
  if (!layer.flops && !layer.times) {
    object.fail(R"(needs "flops" or "times"; add one of them)");
  }
  return layer;
}

}  // namespace

ModelSpec parse_model(const Json& document, const std::string& where) {
  JsonObject object{JsonValue(document, where)};
  object.expect_format(kModelFormat);
  ModelSpec model;
  model.name = parse_name(object.required("name"));
  model.batch = object.required("batch").integer(1, kMaxSize);
  for (const JsonValue& size : object.required("input").array()) {
    model.input.push_back(size.integer(1, kMaxSize));
  }
  const JsonValue parameters = object.required("parameters");
  model.parameters = parameters.integer(1, kMaxSize);
  const JsonValue layers = object.required("layers");
  std::set<std::string> names;
  std::int64_t total = 0;
  for (const JsonValue& value : layers.array()) {
    LayerSpec layer = parse_layer(value);
    if (!names.insert(layer.name).second) {
      value.fail(
          fmt::format("layer name \"{}\" is used twice; give each layer its own name", layer.name));
    }
    total += layer.gradient_elements();
    model.layers.push_back(std::move(layer));
  }
  object.finish();
  if (model.layers.empty()) layers.fail("expected at least one layer (got none)");
  if (total != model.parameters) {
    parameters.fail(fmt::format(
        "the gradients of all layers add up to {} elements (got {}); correct one of them", total,
        model.parameters));
  }
  return model;
}

ModelSpec read_model(const std::filesystem::path& path) {
  return parse_model(read_json_file(path), path.string());
}

Json to_json(const ModelSpec& model) {
  Json layers = Json::array();
  for (const LayerSpec& layer : model.layers) {
    Json entry = {{"name", layer.name},
                  {"kind", layer_kind_names()[static_cast<std::size_t>(layer.kind)]},
                  {"d_a", layer.d_a},
                  {"d_g", layer.d_g},
                  {"bias", layer.bias},
                  {"positions", layer.positions},
                  {"gradients", layer.gradients}};
    for (const auto& [name, value] :
         {std::pair("groups", layer.groups), std::pair("blocks_a", layer.blocks_a),
          std::pair("blocks_g", layer.blocks_g)}) {
      if (value != 1) entry[name] = value;
    }
    if (layer.flops) {
      entry["flops"] = {{"forward", layer.flops->forward.value()},
                        {"factor_a", layer.flops->factor_a.value()},
                        {"factor_g", layer.flops->factor_g.value()}};
    }
    if (layer.times) {
      entry["times"] = {{"forward", layer.times->forward.value()},
                        {"backward", layer.times->backward.value()},
                        {"factor_a", layer.times->factor_a.value()},
                        {"factor_g", layer.times->factor_g.value()}};
      for (const auto& [name, time] : kOptionalTimes) {
        const std::optional<Seconds>& seconds = *layer.times.*time;
        if (seconds) entry["times"][name] = seconds->value();
      }
    }
    layers.push_back(std::move(entry));
  }
  return {{"format", kModelFormat},         {"name", model.name},
          {"batch", model.batch},           {"input", model.input},
          {"parameters", model.parameters}, {"layers", std::move(layers)}};
}

}  // namespace spdkfac
