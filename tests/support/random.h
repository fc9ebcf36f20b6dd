// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "spdkfac/plan/layer_spec.h"
#include "support/models.h"

namespace spdkfac::support {

// Seeded; the same numbers with every standard library (distributions would not give that).
class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}

  // From lo to hi, both included.
  std::int64_t integer(std::int64_t lo, std::int64_t hi) {
    return lo + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(hi - lo + 1));
  }
  double real(double lo, double hi) {
    return lo + (hi - lo) * static_cast<double>(engine_()) / 4294967296.0;
  }
  bool coin() { return integer(0, 1) == 1; }

 private:
  std::mt19937 engine_;
};

// Layers with and without bias, with up to three gradient tensors of modules behind them, and
// measured times.
inline ModelSpec random_model(Random& random, std::size_t layers) {
  ModelSpec model;
  model.name = "random";
  model.batch = random.integer(1, 8);
  model.input = {3, 8, 8};
  for (std::size_t l = 0; l < layers; ++l) {
    LayerSpec layer;
    layer.name = "l" + std::to_string(l);
    layer.kind = random.coin() ? LayerKind::kLinear : LayerKind::kConv2d;
    layer.bias = random.coin();
    layer.d_a = random.integer(2, 30);
    layer.d_g = random.integer(1, 30);
    layer.positions = layer.kind == LayerKind::kConv2d ? random.integer(1, 64) : 1;
    layer.gradients = {layer.d_a * layer.d_g};
    if (layer.bias) layer.gradients = {(layer.d_a - 1) * layer.d_g, layer.d_g};
    for (std::int64_t more = random.integer(0, 3); more > 0; --more) {
      layer.gradients.push_back(random.integer(1, 20));
    }
    layer.times =
        layer_times(random.real(0, 3), random.real(0, 6), random.real(0, 3), random.real(0, 3));
    for (const std::int64_t elements : layer.gradients) model.parameters += elements;
    model.layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace spdkfac::support
