// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/refresh_parts.h"

#include <algorithm>

#include "spdkfac/plan/placement_planner.h"

namespace spdkfac::plan {
namespace {

// Cubes of the dimensions; of a diagonal the number of its elements.
double inversion_work(const FactorShape& shape) {
  const auto dim = static_cast<double>(shape.dim());
  return static_cast<double>(shape.matrices()) * dim * dim * dim;
}

}  // namespace

std::vector<int> refresh_parts(std::span<const LayerShapes> layers, std::int64_t parts) {
  if (layers.empty()) return {};
  std::vector<PlacementItem> items;
  items.reserve(layers.size());
  for (const auto& [a, g] : layers) {
    items.push_back({.weight = inversion_work(a) + inversion_work(g)});
  }
  const auto most = static_cast<std::int64_t>(layers.size());
  std::vector<int> part_of_layer;
  part_of_layer.reserve(layers.size());
  for (const auto& part : place_heaviest_first(items, static_cast<int>(std::min(parts, most)))) {
    part_of_layer.push_back(part.value());
  }
  return part_of_layer;
}

}  // namespace spdkfac::plan
