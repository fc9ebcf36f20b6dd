// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/distribution.h"

#include "spdkfac/plan/planner.h"

namespace spdkfac {

CostModel assumed_costs(int world) {
  CostModel costs;
  costs.name = "assumed";
  costs.world = world;
  const double bytes_per_second = 1.25e9;
  const double share = (world - 1.0) / world;
  const Seconds startup(1e-4);
  const Seconds element(share * kBytesPerElement / bytes_per_second);
  costs.all_reduce = CollectiveCost(startup, element * 2.0);
  costs.reduce = costs.broadcast = CollectiveCost(startup, element);
  const double rate = 5e10;
  costs.inverse = CubicInverse{.c0 = 1e-5, .c3 = 1 / rate};
  costs.compute = ComputeRates{FlopsPerSecond(rate), FlopsPerSecond(rate), FlopsPerSecond(rate)};
  return costs;
}

Planner assumed_planner(int world) {
  return [costs = assumed_costs(world), world](const ModelSpec& model,
                                               const RefreshIntervals& intervals, StepKind step) {
    return make_plan(model, costs, world, preset("spd-kfac"), intervals, step);
  };
}

}  // namespace spdkfac
