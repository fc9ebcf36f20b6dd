// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/emulated_rank.h"

#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "spdkfac/plan/fusion_planner.h"
#include "spdkfac/sim/simulator.h"
#include "spdkfac/trace/breakdown.h"

namespace spdkfac::bench {
namespace {

// Something that one rank does, by its size, as the costs say and as it was timed.
struct Timing {
  double size;
  Seconds modelled;
  std::optional<Seconds>* timed;
};

void complete_timings(const std::vector<Timing>& all) {
  std::map<double, std::pair<Seconds, Seconds>> known;  // by the size's logarithm: timed, modelled
  for (const Timing& work : all) {
    if (!*work.timed || work.modelled <= Seconds(0)) continue;
    auto& [timed, modelled] = known[std::log(work.size)];
    timed += **work.timed;
    modelled += work.modelled;
  }
  if (known.empty()) return;
  for (const Timing& work : all) {
    if (*work.timed) continue;
    const double size = std::log(work.size);
    auto nearest = known.lower_bound(size);
    if (nearest == known.end() ||
        (nearest != known.begin() && size - std::prev(nearest)->first < nearest->first - size)) {
      --nearest;
    }
    const auto& [timed, modelled] = nearest->second;
    *work.timed = work.modelled * (timed / modelled);
  }
}

}  // namespace

ModelSpec with_absent_times(ModelSpec model, const CostModel& costs) {
  ModelSpec untimed = model;
  for (LayerSpec& layer : untimed.layers) {
    if (!layer.times) return model;
    layer.times->inverse_a = layer.times->inverse_g = layer.times->precondition = std::nullopt;
  }
  const std::vector<LayerCosts> modelled = layer_costs(untimed, costs);
  std::vector<Timing> inverses;
  std::vector<Timing> preconditioning;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    LayerSpec& layer = model.layers[i];
    const auto rows = static_cast<double>(layer.shape(FactorSide::kG).dim());
    const auto columns = static_cast<double>(layer.shape(FactorSide::kA).dim());
    inverses.push_back({columns, modelled[i].inverse_a, &layer.times->inverse_a});
    inverses.push_back({rows, modelled[i].inverse_g, &layer.times->inverse_g});
    preconditioning.push_back({static_cast<double>(layer.own_elements()) * (rows + columns),
                               modelled[i].precondition, &layer.times->precondition});
  }
  complete_timings(inverses);
  complete_timings(preconditioning);
  return model;
}

EmulatedLink::Duration link_of(const CostModel& costs) {
  return [costs](Operation operation, const Load& load) {
    switch (operation) {
      case Operation::kAllReduce:
        return plan::message_time(costs, {CollectiveOp::kAllReduce, {}}, load.elements,
                                  load.tensors);
      case Operation::kReduce:
        return plan::message_time(costs, {CollectiveOp::kReduce, 0}, load.elements, load.tensors);
      case Operation::kBroadcast:
        return costs.broadcast.time(load.elements, load.tensors);
      case Operation::kAllGather:  // not of training steps
      case Operation::kBarrier:
        break;
    }
    return Seconds(0);
  };
}

Planner planner_of_emulated_rank(Planner planner, const CostModel& costs, int rank) {
  return [=](const ModelSpec& timed, const RefreshIntervals& intervals, StepKind kind) {
    const ModelSpec model = with_absent_times(timed, costs);
    Plan plan = planner(model, intervals, kind);
    const int critical = critical_rank(simulate(plan, model, costs).trace);
    return with_ranks_swapped(std::move(plan), critical, rank);
  };
}

}  // namespace spdkfac::bench
