// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/nearest_name.h"
#include "spdkfac/models/densenet.h"
#include "spdkfac/models/inception_v4.h"
#include "spdkfac/models/model.h"
#include "spdkfac/models/resnet.h"
#include "spdkfac/models/small.h"

namespace spdkfac::models {

namespace {

// So that the product with a layer's channels stays a number of channels.
constexpr double kMaxWidth = 16;
constexpr std::int64_t kMaxClasses = 1'000'000;
constexpr std::int64_t kMaxChannels = 4096;

struct Entry {
  ModelInfo info;
  std::function<std::shared_ptr<Model>(const ModelOptions&)> make;
};

template <class M>
std::shared_ptr<Model> make(const ModelOptions& options) {
  return std::make_shared<M>(options);
}

template <ResNetShape (*Shape)()>
std::shared_ptr<Model> make_resnet(const ModelOptions& options) {
  return std::make_shared<ResNet>(Shape(), options);
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries = {
      {{"resnet18", "residual network with 18 layers", {3, 224, 224}, 1000, 32},
       make_resnet<resnet18_shape>},
      {{"resnet50", "residual network with 50 layers", {3, 224, 224}, 1000, 32},
       make_resnet<resnet50_shape>},
      {{"resnet152", "residual network with 152 layers", {3, 224, 224}, 1000, 8},
       make_resnet<resnet152_shape>},
      {{"densenet201", "densely connected network with 201 layers", {3, 224, 224}, 1000, 16},
       make<DenseNet201>},
      {{"inception-v4", "Inception network, version 4", {3, 224, 224}, 1000, 16},
       make<InceptionV4>},
      {{"cnn28", "two convolutions and two linear layers, for 28x28", {1, 28, 28}, 10, 256},
       make<Cnn28>},
      {{"resnet20", "residual network with 20 layers, for 32x32", {3, 32, 32}, 10, 256},
       make_resnet<resnet20_shape>},
  };
  return kEntries;
}

const Entry& entry(const std::string& name) {
  for (const Entry& e : entries()) {
    if (e.info.name == name) return e;
  }
  std::vector<std::string> names;
  for (const Entry& e : entries()) names.push_back(e.info.name);
  throw ConfigError(
      fmt::format("model: unknown name \"{}\"; {}", name, advice_for_name(name, names)));
}

void check_count(const char* field, std::int64_t value, std::int64_t most) {
  if (value >= 0 && value <= most) return;
  throw ConfigError(fmt::format(
      "model: {}={} is out of range; pass 1 to {}, or 0 for the model's own", field, value, most));
}

void validate(const ModelOptions& options) {
  if (!(options.width > 0 && options.width <= kMaxWidth)) {
    throw ConfigError(
        fmt::format("model: width={} is out of range; pass a number above 0 and at most {}",
                    options.width, kMaxWidth));
  }
  check_count("classes", options.classes, kMaxClasses);
  check_count("channels", options.channels, kMaxChannels);
}

}  // namespace

const std::vector<ModelInfo>& model_infos() {
  static const std::vector<ModelInfo> kInfos = [] {
    std::vector<ModelInfo> infos;
    for (const Entry& e : entries()) infos.push_back(e.info);
    return infos;
  }();
  return kInfos;
}

const ModelInfo& model_info(const std::string& name) { return entry(name).info; }

std::shared_ptr<Model> make_model(const std::string& name, const ModelOptions& options) {
  const Entry& e = entry(name);
  validate(options);
  ModelOptions complete = options;
  if (complete.classes == 0) complete.classes = e.info.classes;
  if (complete.channels == 0) complete.channels = e.info.input.front();
  return e.make(complete);
}

}  // namespace spdkfac::models
