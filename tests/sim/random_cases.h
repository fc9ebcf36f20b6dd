// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/plan/planner.h"
#include "support/models.h"
#include "support/random.h"

// Models, clusters and plans for tests of properties.
namespace spdkfac::support {

// A factor from 1/16 to 4, so that now one thing dominates, now another.
inline double random_weight(Random& random) {
  return 4.0 / static_cast<double>(std::int64_t{1} << random.integer(0, 6));
}

inline CollectiveCost random_collective(Random& random) {
  return {Seconds(random.real(0, 2) * random_weight(random)),
          Seconds(random.real(0, 0.1) * random_weight(random)),
          Seconds(random.real(0, 0.2) * random_weight(random))};
}

// Collectives, inverses and overheads of the order of the layers of random_model.
inline CostModel random_cluster(Random& random, int world) {
  CostModel costs;
  costs.name = "random";
  costs.world = world;
  costs.all_reduce = random_collective(random);
  costs.reduce = random_collective(random);
  costs.broadcast = random_collective(random);
  const double inverse = random_weight(random);
  costs.inverse = CubicInverse{random.real(0, 1) * inverse, random.real(0, 0.1) * inverse,
                               random.real(0, 0.01) * inverse, 0};
  costs.compute =
      ComputeRates{FlopsPerSecond(1e3), FlopsPerSecond(1e3), FlopsPerSecond(random.real(1e3, 1e5))};
  costs.overheads = {Seconds(random.real(0, 0.3) * random_weight(random)),
                     Seconds(random.real(0, 0.005)),
                     Seconds(random.real(0, 0.005)),
                     random.real(0.2, 1),
                     random.coin() ? 1 : random.real(0.2, 1),
                     random.coin()};
  costs.task_order =
      random.coin() ? TaskOrder::kFactorsAroundPasses : TaskOrder::kFactorsBetweenPasses;
  if (random.coin()) costs.nct_below = random.integer(1, 30);
  return costs;
}

inline std::vector<PlanOptions> second_order_presets() {
  std::vector<PlanOptions> presets;
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (info.options.second_order()) presets.push_back(info.options);
  }
  return presets;
}

struct RandomCase {
  ModelSpec model;
  CostModel costs;
  Plan plan;
};

// Any named algorithm, any kind of step, one to five workers.
inline RandomCase random_case(Random& random) {
  RandomCase result;
  result.model = random_model(random, static_cast<std::size_t>(random.integer(1, 6)));
  const int world = static_cast<int>(random.integer(1, 5));
  result.costs = random_cluster(random, world);
  const auto& algorithms = named_algorithms();
  const auto last = static_cast<std::int64_t>(algorithms.size()) - 1;
  const PlanOptions& options =
      algorithms[static_cast<std::size_t>(random.integer(0, last))].options;
  const auto step =
      options.second_order() ? static_cast<StepKind>(random.integer(0, 2)) : StepKind::kFull;
  result.plan = make_plan(result.model, result.costs, world, options, {}, step);
  return result;
}

// For SCOPED_TRACE.
inline std::ostream& operator<<(std::ostream& out, const RandomCase& random_case) {
  return out << random_case.plan.algorithm << ", step "
             << name_of(step_names(), random_case.plan.step) << ", " << random_case.plan.world
             << " workers, " << random_case.model.layers.size() << " layers";
}

}  // namespace spdkfac::support
