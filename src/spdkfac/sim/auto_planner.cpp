// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/auto_planner.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "spdkfac/base/check.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/plan/refresh_schedule.h"
#include "spdkfac/sim/simulator.h"

namespace spdkfac {
namespace {

// Thresholds between "every layer owned" and "all replicated", spread over the model's dimensions.
constexpr std::size_t kMaxThresholds = 10;

std::vector<std::int64_t> threshold_candidates(const ModelSpec& model) {
  std::set<std::int64_t> dims;
  for (const LayerSpec& layer : model.layers) {
    dims.insert(std::max(layer.shape(FactorSide::kA).dim(), layer.shape(FactorSide::kG).dim()));
  }
  const std::vector<std::int64_t> sorted(dims.begin(), dims.end());
  std::vector<std::int64_t> result = {0};
  const std::size_t count = std::min(sorted.size(), kMaxThresholds);
  for (std::size_t i = 1; i <= count; ++i) {
    result.push_back(sorted[i * sorted.size() / count - 1] + 1);
  }
  return result;
}

class Search {
 public:
  Search(const ModelSpec& model, const CostModel& costs, int world,
         const RefreshIntervals& intervals, Solver solver)
      : model_(model), costs_(costs), world_(world), intervals_(intervals), solver_(solver) {}

  PlanOptions run() {
    for (const AlgorithmInfo& info : named_algorithms()) {
      if (info.options.second_order()) consider(info.options);
    }
    if (world_ == 1) return best_;  // nothing travels: all the rest is the same
    PlanOptions best_blocks;
    Seconds best_blocks_time(std::numeric_limits<double>::infinity());
    for (const Exchange exchange : exchanges()) {
      for (const Fusion fusion : {Fusion::kGreedy, Fusion::kOptimal}) {
        PlanOptions options;
        options.fusion = fusion;
        options.exchange = exchange;
        options.factor_reduce = FactorReduce::kOwner;
        options.balance_by = BalanceBy::kTime;
        consider(options);
        options.balance_by = BalanceBy::kDimension;
        options.placement = PlacementKind::kLpt;
        consider(options);
        options.placement = PlacementKind::kBlocks;
        const Seconds time = consider(options);
        if (time < best_blocks_time) {
          best_blocks_time = time;
          best_blocks = options;
        }
      }
    }
    for (const int owners : owner_counts()) {
      best_blocks.owners = owners;
      consider(best_blocks);
    }
    sweep_thresholds();
    return best_;
  }

 private:
  // V travels in every step, inverses once per refresh; the mixture matters only then.
  std::vector<Exchange> exchanges() const {
    if (intervals_.inverses == 1) return {Exchange::kInverse, Exchange::kGradient};
    return {Exchange::kInverse, Exchange::kGradient, Exchange::kCheapest};
  }

  // Few owners: few messages; many owners: short inversions. About 1.4 apart.
  std::vector<int> owner_counts() const {
    const int most = std::min<int>(world_, static_cast<int>(model_.layers.size()));
    std::vector<int> counts;
    for (double count = 2; count < most; count *= 1.41421356) {
      const int rounded = static_cast<int>(count + 0.5);
      if (counts.empty() || counts.back() != rounded) counts.push_back(rounded);
    }
    counts.push_back(most);
    return counts;
  }

  void sweep_thresholds() {
    if (best_.placement == PlacementKind::kReplicated ||
        best_.placement == PlacementKind::kSequential) {
      return;  // they know no threshold
    }
    const PlanOptions start = best_;
    for (const std::int64_t threshold : threshold_candidates(model_)) {
      PlanOptions options = start;
      options.nct_below = threshold;
      consider(options);
    }
  }

  Seconds consider(PlanOptions options) {
    options.solver = solver_;
    const Seconds time = average_iteration(model_, costs_, world_, options, intervals_);
    if (time < best_time_) {
      best_time_ = time;
      best_ = options;
    }
    return time;
  }

  const ModelSpec& model_;
  const CostModel& costs_;
  int world_;
  const RefreshIntervals& intervals_;
  const Solver solver_;
  Seconds best_time_{std::numeric_limits<double>::infinity()};
  PlanOptions best_;
};

auto plan_of(const auto& cycle, StepKind step) {
  return std::find_if(cycle.begin(), cycle.end(),
                      [&](const Plan& plan) { return plan.step == step; });
}

// The full steps of spread refreshes.
std::vector<StepShare> spread_steps(const ModelSpec& model, const RefreshIntervals& intervals) {
  std::vector<plan::LayerShapes> shapes;
  for (const LayerSpec& layer : model.layers) {
    shapes.push_back({layer.shape(FactorSide::kA), layer.shape(FactorSide::kG)});
  }
  std::vector<StepShare> steps;
  for (const auto& [parts, counts] : plan::refresh_part_counts(intervals)) {
    const std::vector<int> part_of_layer = plan::refresh_parts(shapes, parts);
    // The rest has no layers.
    for (std::size_t part = 0; part < std::min(counts.size(), shapes.size()); ++part) {
      std::vector<bool> renewed;
      for (const int own : part_of_layer) renewed.push_back(own == static_cast<int>(part));
      if (counts[part] > 0) steps.push_back({StepKind::kFull, counts[part], std::move(renewed)});
    }
  }
  return steps;
}

}  // namespace

std::vector<StepShare> refresh_cycle(const ModelSpec& model, const PlanOptions& options,
                                     const RefreshIntervals& intervals) {
  if (!options.second_order()) return {{StepKind::kFull, 1}};
  plan::RefreshCounts counts = plan::refresh_counts(intervals);
  std::vector<StepShare> cycle;
  if (intervals.spread) {
    cycle = spread_steps(model, intervals);
    counts.factors_only += counts.full;
    for (const StepShare& full : cycle) counts.factors_only -= full.count;
  } else {
    cycle.push_back({StepKind::kFull, counts.full});
  }
  if (counts.factors_only > 0) cycle.push_back({StepKind::kFactors, counts.factors_only});
  if (counts.neither > 0) cycle.push_back({StepKind::kGradients, counts.neither});
  return cycle;
}

std::vector<Plan> cycle_plans(const ModelSpec& model, const CostModel& costs, int world,
                              const PlanOptions& options, const RefreshIntervals& intervals) {
  std::vector<Plan> plans;
  for (const StepShare& share : refresh_cycle(model, options, intervals)) {
    if (plan_of(plans, share.step) == plans.end()) {
      plans.push_back(make_plan(model, costs, world, options, intervals, share.step));
    }
  }
  return plans;
}

Seconds average_iteration(const ModelSpec& model, const CostModel& costs,
                          std::span<const Plan> cycle) {
  Seconds total(0);
  std::int64_t steps = 0;
  SPDKFAC_CHECK(!cycle.empty(), "a cycle without steps");
  for (const auto& [step, count, renewed] :
       refresh_cycle(model, cycle.front().options, cycle.front().intervals)) {
    const auto plan = plan_of(cycle, step);
    SPDKFAC_CHECK(plan != cycle.end(), "a cycle of other steps");
    const SimulationOptions without_trace{.trace = false, .renewed = renewed};
    total += simulate(*plan, model, costs, without_trace).iteration * static_cast<double>(count);
    steps += count;
  }
  return total / static_cast<double>(steps);
}

Seconds average_iteration(const ModelSpec& model, const CostModel& costs, int world,
                          const PlanOptions& options, const RefreshIntervals& intervals) {
  return average_iteration(model, costs, cycle_plans(model, costs, world, options, intervals));
}

PlanOptions best_options(const ModelSpec& model, const CostModel& costs, int world,
                         const RefreshIntervals& intervals, Solver solver) {
  return Search(model, costs, world, intervals, solver).run();
}

Plan make_best_plan(const ModelSpec& model, const CostModel& costs, int world,
                    const PlanOptions& options, const RefreshIntervals& intervals, StepKind step) {
  if (options.algorithm != kAutoAlgorithm) {
    return make_plan(model, costs, world, options, intervals, step);
  }
  const PlanOptions best = best_options(model, costs, world, intervals, options.solver);
  Plan plan = make_plan(model, costs, world, best, intervals, step);
  plan.algorithm = kAutoAlgorithm;
  plan.options.algorithm = kAutoAlgorithm;
  return plan;
}

}  // namespace spdkfac
