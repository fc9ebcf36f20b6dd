// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/factor_placement.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "spdkfac/plan/placement_planner.h"
#include "spdkfac/plan/refresh_schedule.h"

namespace spdkfac::plan {
namespace {

// What is placed as one: a single factor, or both factors of a layer whose owner sends V.
struct Unit {
  std::vector<FactorPlacement> factors;
  Seconds work;  // of the owner: inverses, and preconditioning when it sends V
  std::optional<int> owner;
  bool sends_gradient = false;
};

class UnitBuilder {
 public:
  UnitBuilder(const ModelSpec& model, std::span<const LayerCosts> layers, const CostModel& costs,
              const PlanOptions& options, const RefreshIntervals& intervals)
      : model_(model),
        layers_(layers),
        costs_(costs),
        options_(options),
        steps_per_inverse_(plan::refresh_counts(intervals).steps_per_inverse()) {}

  std::vector<Unit> units() const {
    std::vector<Unit> result;
    for (std::size_t l = 0; l < model_.layers.size(); ++l) {
      const LayerSpec& layer = model_.layers[l];
      const int index = static_cast<int>(l);
      const FactorPlacement a = unowned(index, layer.shape(FactorSide::kA), FactorSide::kA);
      const FactorPlacement g = unowned(index, layer.shape(FactorSide::kG), FactorSide::kG);
      const Seconds inverse_a = layers_[l].inverse_a;
      const Seconds inverse_g = layers_[l].inverse_g;
      if (sends_gradient(layer)) {
        result.push_back({{a, g}, inverse_a + inverse_g + layers_[l].precondition, {}, true});
      } else if (placed_whole()) {
        result.push_back({{a, g}, inverse_a + inverse_g + own_work(layers_[l]), {}});
      } else {
        result.push_back({{a}, inverse_a, {}});
        result.push_back({{g}, inverse_g, {}});
      }
    }
    return result;
  }

  PlacementItem item(const Unit& unit) const {
    const bool by_time =
        options_.placement != PlacementKind::kBalanced || options_.balance_by == BalanceBy::kTime;
    if (by_time) return {unit.work.value(), replicate(unit)};
    double weight = 0;
    for (const FactorPlacement& factor : unit.factors) {
      const double dim = static_cast<double>(factor.dim);
      weight += static_cast<double>(factor.blocks) *
                (options_.balance_by == BalanceBy::kSquare ? dim * dim : dim);
    }
    return {weight, replicate(unit)};
  }

 private:
  // One rank has both factors of a layer, though its gradient is all-reduced.
  bool placed_whole() const {
    return options_.gradient_workers || options_.exchange == Exchange::kGather ||
           options_.factor_reduce == FactorReduce::kLocal;
  }
  // What the owner does on top of its inversions, and others do not.
  Seconds own_work(const LayerCosts& layer) const {
    Seconds work;
    if (options_.factor_reduce == FactorReduce::kLocal) work += layer.factor_a + layer.factor_g;
    if (worker_grid(options_, costs_.world).workers == 1) work += layer.precondition;
    return work;
  }
  // The inverse is exchanged once per refresh, V in every step.
  bool sends_gradient(const LayerSpec& layer) const {
    if (options_.exchange != Exchange::kCheapest) return options_.exchange == Exchange::kGradient;
    const auto sent = [&](FactorSide side) {
      return costs_.broadcast.time(layer.shape(side).result_elements(options_.solver));
    };
    const Seconds inverses = sent(FactorSide::kA) + sent(FactorSide::kG);
    return costs_.broadcast.time(layer.own_elements()) <= inverses / steps_per_inverse_;
  }

  // The paper's rule: computing everywhere costs less than sending. A cluster file's own threshold
  // speaks of exchanged inverses only.
  bool replicate(const Unit& unit) const {
    const bool pair = unit.factors.size() == 2;
    auto threshold = options_.nct_below;
    if (!threshold && !pair && options_.placement == PlacementKind::kBalanced) {
      threshold = costs_.nct_below;
    }
    if (threshold) {
      return std::all_of(unit.factors.begin(), unit.factors.end(),
                         [&](const FactorPlacement& factor) { return factor.dim < *threshold; });
    }
    if (options_.placement != PlacementKind::kBalanced) return false;
    if (!pair) {
      return unit.work < costs_.broadcast.time(unit.factors[0].result(options_.solver));
    }
    const auto layer = static_cast<std::size_t>(unit.factors[0].layer);
    const Seconds inverses = layers_[layer].inverse_a + layers_[layer].inverse_g;
    return inverses / steps_per_inverse_ + layers_[layer].precondition <
           costs_.broadcast.time(model_.layers[layer].own_elements());
  }

  const ModelSpec& model_;
  std::span<const LayerCosts> layers_;
  const CostModel& costs_;
  const PlanOptions& options_;
  double steps_per_inverse_;
};

Owners place(std::span<const PlacementItem> items, int world, const PlanOptions& options) {
  switch (options.placement) {
    case PlacementKind::kReplicated:
      return Owners(items.size());
    case PlacementKind::kSequential:
      return place_sequential(items.size(), world);
    case PlacementKind::kBlocks:
      return place_blocks(items, world, options.owners.value_or(world));
    case PlacementKind::kBalanced:
    case PlacementKind::kLpt:
      break;
  }
  return place_heaviest_first(items, world, worker_grid(options, world).columns);
}

// Owned units first, by the time at which their owner has them: of one owner the short ones first,
// a block as a whole, because its gradients share one broadcast.
void order_by_completion(std::vector<Unit>& units, int world, bool whole_blocks) {
  std::stable_sort(units.begin(), units.end(),
                   [](const Unit& a, const Unit& b) { return a.work < b.work; });
  std::vector<Seconds> load(static_cast<std::size_t>(world));
  std::vector<Seconds> done(units.size(), Seconds(std::numeric_limits<double>::infinity()));
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (units[i].owner) done[i] = load[static_cast<std::size_t>(*units[i].owner)] += units[i].work;
  }
  const auto key = [&](std::size_t i) {
    const bool block = whole_blocks && units[i].owner;
    return std::pair(block ? load[static_cast<std::size_t>(*units[i].owner)] : done[i],
                     block ? *units[i].owner : -1);
  };
  std::vector<std::size_t> order(units.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  std::vector<Unit> sorted;
  sorted.reserve(units.size());
  for (const std::size_t index : order) sorted.push_back(std::move(units[index]));
  units = std::move(sorted);
}

}  // namespace

FactorPlacement unowned(int layer, const FactorShape& shape, FactorSide side) {
  FactorPlacement factor;
  factor.layer = layer;
  factor.side = side;
  factor.dim = shape.dim();
  factor.blocks = shape.matrices();
  return factor;
}

std::vector<FactorPlacement> place_factors(const ModelSpec& model,
                                           std::span<const LayerCosts> layers,
                                           const CostModel& costs, const PlanOptions& options,
                                           const RefreshIntervals& intervals) {
  const UnitBuilder builder(model, layers, costs, options, intervals);
  std::vector<Unit> units = builder.units();
  if (costs.world > 1 && options.placement != PlacementKind::kReplicated) {
    std::vector<PlacementItem> items;
    items.reserve(units.size());
    for (const Unit& unit : units) items.push_back(builder.item(unit));
    const Owners owners = place(items, costs.world, options);
    for (std::size_t i = 0; i < units.size(); ++i) units[i].owner = owners[i];
    if (options.exchange != Exchange::kInverse) {
      order_by_completion(units, costs.world, options.placement == PlacementKind::kBlocks);
    }
  }
  std::vector<FactorPlacement> factors;
  factors.reserve(2 * model.layers.size());
  for (const Unit& unit : units) {
    for (FactorPlacement factor : unit.factors) {
      factor.owner = unit.owner;
      factor.sends_gradient = unit.owner && unit.sends_gradient;
      factors.push_back(factor);
    }
  }
  return factors;
}

}  // namespace spdkfac::plan
