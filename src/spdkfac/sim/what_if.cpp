// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/what_if.h"

#include <algorithm>
#include <set>
#include <utility>

namespace spdkfac::sim {
namespace {

InverseCost scaled(const InverseCost& cost, double factor) {
  struct Scale {
    double factor;
    InverseCost operator()(ExponentialInverse c) const {
      c.alpha *= factor;
      return c;
    }
    InverseCost operator()(PowerInverse c) const {
      c.coefficient *= factor;
      return c;
    }
    InverseCost operator()(const CubicInverse& c) const {
      return CubicInverse{c.c0 * factor, c.c1 * factor, c.c2 * factor, c.c3 * factor};
    }
    InverseCost operator()(const CostTable& table) const {
      auto points = table.points();
      for (auto& [dim, seconds] : points) seconds = seconds * factor;
      return CostTable(std::move(points));
    }
  };
  return std::visit(Scale{factor}, cost);
}

// Whatever says how long a layer takes, as measured times they can be scaled one by one. What was
// not measured of preconditioning and inverses is left to the cluster.
void scale_layers(Scenario& scenario, const CostScale& scale) {
  const std::vector<LayerCosts> layers = layer_costs(scenario.model, scenario.costs);
  const auto multiply = [](std::optional<Seconds>& time, double factor) {
    if (time) time = *time * factor;
  };
  for (std::size_t l = 0; l < layers.size(); ++l) {
    LayerTimes times = scenario.model.layers[l].times.value_or(LayerTimes{});
    times.forward = layers[l].forward * scale.forward_backward;
    times.backward = layers[l].backward * scale.forward_backward;
    times.factor_a = layers[l].factor_a * scale.factors;
    times.factor_g = layers[l].factor_g * scale.factors;
    multiply(times.precondition, scale.precondition);
    multiply(times.inverse_a, scale.inverses);
    multiply(times.inverse_g, scale.inverses);
    scenario.model.layers[l].times = times;
  }
  const auto totals = scenario.costs.models.find(scenario.model.name);
  if (totals != scenario.costs.models.end()) {
    totals->second.factors = totals->second.factors * scale.precondition;
  }
  if (scenario.costs.compute) {
    FlopsPerSecond& rate = scenario.costs.compute->precondition;
    rate = rate / scale.precondition;  // infinite when free
  }
}

std::vector<Seconds> inverse_times(const ModelSpec& model, const CostModel& costs) {
  std::vector<Seconds> times;
  for (const LayerSpec& layer : model.layers) {
    times.push_back(inverse_time(layer, FactorSide::kA, costs));
    times.push_back(inverse_time(layer, FactorSide::kG, costs));
  }
  return times;
}

}  // namespace

Scenario scaled(const Scenario& scenario, const CostScale& scale) {
  Scenario result = scenario;
  scale_layers(result, scale);
  CostModel& costs = result.costs;
  costs.inverse = scaled(costs.inverse, scale.inverses);
  for (CollectiveCost* cost : {&costs.all_reduce, &costs.reduce, &costs.broadcast}) {
    *cost = cost->scaled(scale.startups, scale.bytes, scale.startups);
  }
  Overheads& overheads = costs.overheads;
  overheads.host_per_tensor = overheads.host_per_tensor * scale.host;
  overheads.pack_per_element = overheads.pack_per_element * scale.packing;
  overheads.unpack_per_element = overheads.unpack_per_element * scale.packing;
  if (scale.contention != 1) {
    for (double* rate : {&overheads.compute_rate_under_communication,
                         &overheads.communication_rate_under_computation}) {
      const double lost = 1 / *rate - 1;
      *rate = 1 / (1 + lost * scale.contention);
    }
  }
  return result;
}

Scenario with_inverses_at_most(const Scenario& scenario, Seconds most) {
  std::set<std::int64_t> dims;
  for (const LayerSpec& layer : scenario.model.layers) {
    dims.insert({layer.shape(FactorSide::kA).dim(), layer.shape(FactorSide::kG).dim()});
  }
  std::vector<std::pair<double, Seconds>> points;
  for (const std::int64_t dim : dims) {
    const Seconds time = std::min(scenario.costs.inverse_time(dim), most);
    // A table never falls.
    points.emplace_back(dim, points.empty() ? time : std::max(time, points.back().second));
  }
  Scenario result = scenario;
  result.costs.inverse = CostTable(std::move(points));
  for (LayerSpec& layer : result.model.layers) {
    if (!layer.times) continue;
    for (std::optional<Seconds>* time : {&layer.times->inverse_a, &layer.times->inverse_g}) {
      if (*time) *time = std::min(**time, most);
    }
  }
  return result;
}

Seconds all_inverses(const ModelSpec& model, const CostModel& costs) {
  Seconds sum(0);
  for (const Seconds time : inverse_times(model, costs)) sum += time;
  return sum;
}

Seconds largest_inverse(const ModelSpec& model, const CostModel& costs) {
  const std::vector<Seconds> times = inverse_times(model, costs);
  return *std::max_element(times.begin(), times.end());
}

}  // namespace spdkfac::sim
