// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <utility>
#include <vector>

#include "spdkfac/plan/fusion_planner.h"
#include "support/models.h"
#include "support/random.h"

namespace spdkfac::support {

// One family of random fusion problems; a failure prints its name.
struct FusionFamily {
  const char* name;
  bool table;
  bool routes;
  bool slowed;
};
inline void PrintTo(const FusionFamily& family, std::ostream* out) { *out << family.name; }

struct FusionCase {
  std::vector<plan::FusionItem> items;
  CostModel costs;
  double channel_free = 0;
};

inline CollectiveCost random_collective(Random& random, bool table) {
  const Seconds per_tensor(random.coin() ? random.real(0, 1) : 0);
  if (!table) return {Seconds(random.real(0, 6)), Seconds(random.real(0, 1.5)), per_tensor};
  std::vector<std::pair<double, Seconds>> points;
  double size = random.real(0, 3);
  double time = random.real(0, 5);
  for (std::int64_t i = random.integer(2, 6); i > 0; --i) {
    points.emplace_back(size, Seconds(time));
    size += random.real(0.5, 10);
    time += random.integer(0, 2) == 0 ? 0 : random.real(0, 8);  // also plateaus
  }
  return CollectiveCost(CostTable(points), per_tensor);
}

// From `fewest` to `most` items. The channel may be busy at first, but not where it slows
// computation.
inline FusionCase random_fusion_case(Random& random, const FusionFamily& family,
                                     std::int64_t fewest, std::int64_t most) {
  FusionCase result;
  result.costs = affine_costs(4, 0, 0);
  result.costs.all_reduce = random_collective(random, family.table);
  result.costs.reduce = random_collective(random, family.table);
  double ready = 0;
  const bool whole = random.coin();  // whole numbers make ties
  const double slow = random.coin() ? 1 : 4;
  Route route;
  for (std::int64_t n = random.integer(fewest, most); n > 0; --n) {
    ready += slow * (whole ? static_cast<double>(random.integer(0, 4)) : random.real(0, 5));
    if (family.routes && random.integer(0, 2) == 0) {
      route = random.coin() ? Route{}
                            : Route{CollectiveOp::kReduce, static_cast<int>(random.integer(0, 3))};
    }
    result.items.push_back({Seconds(ready), random.integer(1, 9), random.integer(1, 3), route});
  }
  if (family.slowed) {
    result.costs.overheads.compute_rate_under_communication = random.real(0.05, 1);
  } else if (random.coin()) {
    result.channel_free = random.real(0, 15);
  }
  return result;
}

}  // namespace spdkfac::support
