// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"

namespace spdkfac {

inline CostModel bundled_cluster(const std::string& name) {
  return read_cluster(std::string(SPDKFAC_SOURCE_DIR) + "/data/clusters/" + name + ".json");
}

// A bundled model cut to, or repeated up to, a number of layers.
inline ModelSpec resized_model(const std::string& name, std::int64_t layers) {
  ModelSpec model = read_model(std::string(SPDKFAC_SOURCE_DIR) + "/data/models/" + name + ".json");
  const std::size_t known = model.layers.size();
  const auto wanted = static_cast<std::size_t>(layers);
  for (std::size_t i = known; i < wanted; ++i) model.layers.push_back(model.layers[i % known]);
  model.layers.resize(wanted);
  return model;
}

}  // namespace spdkfac
