// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/cost_model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/plan/method_costs.h"

namespace spdkfac {
namespace {

double alpha_factor(AlphaScaling scaling, int from, int to) {
  switch (scaling) {
    case AlphaScaling::kLog:
      return std::log2(static_cast<double>(to)) / std::log2(static_cast<double>(from));
    case AlphaScaling::kLinear:
      return static_cast<double>(to) / from;
    case AlphaScaling::kConstant:
      return 1;
  }
  SPDKFAC_CHECK(false, "unknown AlphaScaling");
}

double ring_share(int world) { return (world - 1.0) / world; }

// Seconds per flop of each part, when the cluster knows them for this model.
struct FlopTimes {
  double forward = 0;
  double factor = 0;
  double precondition = 0;
};

std::optional<FlopTimes> from_totals(const ModelSpec& model, const CostModel& costs) {
  const auto found = costs.models.find(model.name);
  if (found == costs.models.end() || found->second.batch != model.batch) return std::nullopt;
  const double batch = static_cast<double>(model.batch);
  double forward = 0;
  double factors = 0;
  for (const LayerSpec& layer : model.layers) {
    if (!layer.flops) return std::nullopt;
    forward += batch * layer.flops->forward.value();
    factors += batch * (layer.flops->factor_a + layer.flops->factor_g).value() +
               plan::two_sided_flops(layer).value();
  }
  // Forward and backward together cost three forwards.
  const double per_forward = found->second.forward_backward.value() / (3 * std::max(forward, 1.0));
  const double per_factor = found->second.factors.value() / std::max(factors, 1.0);
  return FlopTimes{per_forward, per_factor, per_factor};
}

std::optional<FlopTimes> flop_times(const ModelSpec& model, const CostModel& costs) {
  if (auto totals = from_totals(model, costs)) return totals;
  if (!costs.compute) return std::nullopt;
  return FlopTimes{1 / costs.compute->forward.value(), 1 / costs.compute->factor.value(),
                   1 / costs.compute->precondition.value()};
}

// Instead of what K-FAC takes; passes stay.
void use_method(Method method, const ModelSpec& model, const LayerSpec& layer,
                const std::optional<FlopTimes>& rates, LayerCosts& cost) {
  if (method == Method::kKfac) return;
  double per_flop = 0;
  if (rates) {
    per_flop = rates->precondition;
  } else if (layer.times && layer.times->precondition) {
    per_flop = layer.times->precondition->value() / plan::two_sided_flops(layer).value();
  } else {
    throw ConfigError(fmt::format(
        "model {}: the time that method={} takes for layer {} is unknown; use a cluster with "
        "\"compute\", or add the layer's \"precondition\" time",
        model.name, name_of(method_names(), method), layer.name));
  }
  const auto time = [&](Flops flops) { return Seconds(flops.value() * per_flop); };
  cost.factor_a = time(plan::statistics_flops(layer, FactorSide::kA, method));
  cost.factor_g = time(plan::statistics_flops(layer, FactorSide::kG, method));
  cost.precondition = time(plan::update_flops(layer, method));
}

}  // namespace

CostTable::CostTable(std::vector<std::pair<double, Seconds>> points) : points_(std::move(points)) {
  if (points_.empty()) throw ConfigError("cost table: expected at least one point (got none)");
  for (std::size_t i = 1; i < points_.size(); ++i) {
    if (points_[i].first <= points_[i - 1].first) {
      throw ConfigError(fmt::format("cost table: sizes must increase (got {} after {}); sort them",
                                    points_[i].first, points_[i - 1].first));
    }
    if (points_[i].second < points_[i - 1].second) {
      throw ConfigError(fmt::format(
          "cost table: seconds must not decrease (got {} after {}); smooth the measurement",
          points_[i].second.value(), points_[i - 1].second.value()));
    }
  }
}

Seconds CostTable::operator()(double x) const {
  if (x <= points_.front().first || points_.size() == 1) return points_.front().second;
  auto right =
      std::lower_bound(points_.begin(), points_.end(), x,
                       [](const auto& point, double value) { return point.first < value; });
  if (right == points_.end()) --right;
  const auto left = right - 1;
  const double share = (x - left->first) / (right->first - left->first);
  return left->second + (right->second - left->second) * share;
}

CollectiveCost::CollectiveCost(Seconds alpha, Seconds beta, Seconds per_tensor)
    : alpha_(alpha), beta_(beta), per_tensor_(per_tensor) {}

CollectiveCost::CollectiveCost(CostTable table, Seconds per_tensor)
    : per_tensor_(per_tensor), table_(std::move(table)) {}

CollectiveCost CollectiveCost::scaled(double alpha_factor, double beta_factor,
                                      double per_tensor_factor) const {
  const Seconds per_tensor = per_tensor_ * per_tensor_factor;
  if (!table_) return {alpha_ * alpha_factor, beta_ * beta_factor, per_tensor};
  // The first entry stands for the start-up time, what exceeds it for the transfer.
  auto points = table_->points();
  const Seconds start = points.front().second;
  for (auto& [elements, seconds] : points) {
    seconds = start * alpha_factor + (seconds - start) * beta_factor;
  }
  return CollectiveCost(CostTable(std::move(points)), per_tensor);
}

Seconds inverse_time(const InverseCost& cost, std::int64_t dim) {
  const double d = static_cast<double>(dim);
  struct Evaluate {
    double d;
    Seconds operator()(const ExponentialInverse& c) const {
      // Far outside of what was measured the form explodes; sums must stay finite.
      constexpr double kMaxExponent = 100;
      return Seconds(c.alpha * std::exp(std::min(c.beta * d, kMaxExponent)));
    }
    Seconds operator()(const PowerInverse& c) const {
      return Seconds(c.coefficient * std::pow(d, c.exponent));
    }
    Seconds operator()(const CubicInverse& c) const {
      return Seconds(c.c0 + d * (c.c1 + d * (c.c2 + d * c.c3)));
    }
    Seconds operator()(const CostTable& table) const { return table(d); }
  };
  return std::visit(Evaluate{d}, cost);
}

CostModel CostModel::for_world(int new_world) const {
  if (new_world < 1 || new_world > kMaxWorld) {
    throw ConfigError(fmt::format("cluster {}: cannot be scaled to {} ranks; give 1 to {}", name,
                                  new_world, kMaxWorld));
  }
  if (new_world == world) return *this;
  CostModel result = *this;
  result.world = new_world;
  if (new_world == 1) {
    result.all_reduce = result.reduce = result.broadcast = CollectiveCost();
    return result;
  }
  if (world == 1) {
    throw ConfigError(fmt::format(
        "cluster {}: its costs are for one rank and cannot be scaled to {}; use a cluster file "
        "measured with at least 2 ranks",
        name, new_world));
  }
  const double alpha = alpha_factor(alpha_scaling, world, new_world);
  const double beta = ring_share(new_world) / ring_share(world);
  for (CollectiveCost* cost : {&result.all_reduce, &result.reduce, &result.broadcast}) {
    *cost = cost->scaled(alpha, beta);
  }
  return result;
}

CollectiveCost CostModel::broadcast_within(int ranks) const {
  SPDKFAC_CHECK(ranks >= 1 && ranks <= world, fmt::format("{} of {} ranks", ranks, world));
  if (ranks == world) return broadcast;
  if (ranks == 1) return {};
  return broadcast.scaled(alpha_factor(alpha_scaling, world, ranks),
                          ring_share(ranks) / ring_share(world));
}

Seconds inverse_time(const LayerSpec& layer, FactorSide side, const CostModel& costs,
                     const PlanOptions& options) {
  double times = plan::refresh_in_inversions(options.method);
  const bool is_a = side == FactorSide::kA;
  if (layer.times) {
    const std::optional<Seconds>& measured = is_a ? layer.times->inverse_a : layer.times->inverse_g;
    if (measured) return *measured * times;
  }
  times *= plan::refresh_in_inversions(options.solver);
  const FactorShape shape = layer.shape(side);
  if (shape.is_diagonal()) return costs.inverse_time(1) * times;  // reciprocals, all at once
  return costs.inverse_time(shape.dim()) * (times * static_cast<double>(shape.matrices()));
}

std::vector<LayerCosts> layer_costs(const ModelSpec& model, const CostModel& costs,
                                    const PlanOptions& options) {
  const auto rates = flop_times(model, costs);
  const double batch = static_cast<double>(model.batch);
  std::vector<LayerCosts> result;
  result.reserve(model.layers.size());
  for (const LayerSpec& layer : model.layers) {
    LayerCosts cost;
    if (layer.times) {
      cost = {.forward = layer.times->forward,
              .backward = layer.times->backward,
              .factor_a = layer.times->factor_a,
              .factor_g = layer.times->factor_g,
              .precondition = Seconds(0),
              .inverse_a = Seconds(0),
              .inverse_g = Seconds(0)};
    } else if (rates && layer.flops) {
      cost.forward = Seconds(batch * layer.flops->forward.value() * rates->forward);
      cost.backward = 2.0 * cost.forward;
      cost.factor_a = Seconds(batch * layer.flops->factor_a.value() * rates->factor);
      cost.factor_g = Seconds(batch * layer.flops->factor_g.value() * rates->factor);
    } else if (rates) {
      throw ConfigError(
          fmt::format("model {}: layer {} has neither times nor flops; add one of them", model.name,
                      layer.name));
    } else {
      const auto totals = costs.models.find(model.name);
      std::string known = fmt::format("no measured totals for {}", model.name);
      std::string other_batch;
      if (totals != costs.models.end() && totals->second.batch == model.batch) {
        known = "measured totals, which need the flops of every layer,";
      } else if (totals != costs.models.end()) {
        known = fmt::format("measured totals only for batch {}", totals->second.batch);
        other_batch = fmt::format("batch {}, or ", totals->second.batch);
      }
      throw ConfigError(
          fmt::format("cluster {}: the time of layer {} of {} at batch {} is unknown (the cluster "
                      "has {} and no compute rates); use {}a cluster with \"compute\", or a model "
                      "file with \"times\"",
                      costs.name, layer.name, model.name, model.batch, known, other_batch));
    }
    if (layer.times && layer.times->precondition) {
      cost.precondition = *layer.times->precondition;
    } else if (rates) {
      cost.precondition = Seconds(plan::two_sided_flops(layer).value() *
                                  plan::two_sided_products(options.solver) * rates->precondition);
    }
    cost.inverse_a = inverse_time(layer, FactorSide::kA, costs, options);
    cost.inverse_g = inverse_time(layer, FactorSide::kG, costs, options);
    use_method(options.method, model, layer, rates, cost);
    result.push_back(cost);
  }
  return result;
}

}  // namespace spdkfac
