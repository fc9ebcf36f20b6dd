// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/refresh_parts.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdkfac {
namespace {

using plan::LayerShapes;
using plan::refresh_parts;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

LayerShapes layer(std::int64_t d_a, std::int64_t d_g) { return {{d_a}, {d_g}}; }

TEST(RefreshParts, TheHeaviestLayerGoesToTheLightestPart) {
  // Cubes: 216 + 1, 125 + 1, 64 + 1, 64 + 1, 27 + 1. Two parts: 217 | 126; 65 goes to 126, which
  // gives 191, and 65 to that: 256; 28 goes to 217.
  const std::vector<LayerShapes> layers = {layer(3, 1), layer(4, 1), layer(6, 1), layer(1, 4),
                                           layer(5, 1)};
  EXPECT_THAT(refresh_parts(layers, 2), ElementsAre(0, 1, 0, 1, 1));
}

TEST(RefreshParts, DiagonalsCountAsTheirElementsAndBlocksAsTheirCubes) {
  const FactorShape whole{4, 1, 1};       // 64
  const FactorShape diagonal{60, 1, 60};  // 60
  const FactorShape blocks{4, 3, 2};      // 3 groups of 2 blocks of 8: 48
  const FactorShape one{1};
  // 65 | 61, and 49 to 61.
  const std::vector<LayerShapes> layers = {{blocks, one}, {one, diagonal}, {whole, one}};
  EXPECT_THAT(refresh_parts(layers, 2), ElementsAre(1, 1, 0));
}

TEST(RefreshParts, OfEqualLayersTakeTurns) {
  const std::vector<LayerShapes> layers(5, layer(7, 7));
  EXPECT_THAT(refresh_parts(layers, 2), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(refresh_parts(layers, 1), Each(0));
}

TEST(RefreshParts, BeyondTheLayersThereIsNothing) {
  const std::vector<LayerShapes> layers = {layer(2, 2), layer(9, 9), layer(5, 5)};
  EXPECT_THAT(refresh_parts(layers, 1'000'000), ElementsAre(2, 0, 1));
  EXPECT_THAT(refresh_parts({}, 3), IsEmpty());
}

// Of list scheduling: the lightest part cannot take the last layer of the heaviest.
TEST(RefreshParts, DifferByNoMoreThanTheLargestLayer) {
  std::vector<LayerShapes> layers;
  for (std::int64_t i = 0; i < 50; ++i) layers.push_back(layer(10 + 7 * i % 40, 5 + 3 * i % 20));
  const auto work = [](const LayerShapes& one) {
    return one.a.size * one.a.size * one.a.size + one.g.size * one.g.size * one.g.size;
  };
  for (const std::int64_t parts : {2, 3, 10, 17}) {
    const std::vector<int> part_of_layer = refresh_parts(layers, parts);
    std::vector<std::int64_t> sums(static_cast<std::size_t>(parts));
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      sums.at(static_cast<std::size_t>(part_of_layer[i])) += work(layers[i]);
      largest = std::max(largest, work(layers[i]));
    }
    const auto [low, high] = std::minmax_element(sums.begin(), sums.end());
    EXPECT_LE(*high - *low, largest) << parts;
    EXPECT_GT(*low, 0) << parts;
  }
}

}  // namespace
}  // namespace spdkfac
