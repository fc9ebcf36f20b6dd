// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"

// Small models and clusters whose numbers can be followed by hand.
namespace spdkfac::support {

struct LayerDims {
  std::int64_t d_a = 1;
  std::int64_t d_g = 1;
};

constexpr LayerTimes kNoTimes{};

// Every layer: linear, without bias, one gradient tensor of d_a·d_g elements, the same measured
// times. Layers are named l0, l1, …
inline ModelSpec tiny_model(const std::vector<LayerDims>& dims, const LayerTimes& times = kNoTimes,
                            const std::string& name = "tiny") {
  ModelSpec model;
  model.name = name;
  model.batch = 1;
  model.input = {dims.empty() ? 1 : dims.front().d_a};
  for (std::size_t l = 0; l < dims.size(); ++l) {
    LayerSpec layer;
    layer.name = "l" + std::to_string(l);
    layer.kind = LayerKind::kLinear;
    layer.d_a = dims[l].d_a;
    layer.d_g = dims[l].d_g;
    layer.gradients = {dims[l].d_a * dims[l].d_g};
    layer.times = times;
    model.parameters += layer.gradients.front();
    model.layers.push_back(std::move(layer));
  }
  return model;
}

// Measured times from plain seconds: forward, backward, factor A, factor G.
inline LayerTimes layer_times(double forward, double backward, double factor_a, double factor_g) {
  return {Seconds(forward), Seconds(backward), Seconds(factor_a), Seconds(factor_g)};
}

// All collectives cost alpha + beta·elements; no overheads, no compute rates (give the model's
// layers times), inversions cost what `inverse` says: by default nothing. Factors are computed
// around the passes, as in the paper; tests of the runtime's order change that.
inline CostModel affine_costs(int world, double alpha, double beta,
                              InverseCost inverse = CubicInverse{}) {
  CostModel costs;
  costs.name = "affine";
  costs.world = world;
  const CollectiveCost collective{Seconds(alpha), Seconds(beta)};
  costs.all_reduce = collective;
  costs.reduce = collective;
  costs.broadcast = collective;
  costs.inverse = std::move(inverse);
  costs.task_order = TaskOrder::kFactorsAroundPasses;
  costs.source = "made up for a test";
  return costs;
}

}  // namespace spdkfac::support
