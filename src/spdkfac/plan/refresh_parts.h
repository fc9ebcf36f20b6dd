// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spdkfac/base/factor_shape.h"

namespace spdkfac::plan {

// A part of a refresh of the inverses that is spread over several steps.
struct RefreshPart {
  std::int64_t index = 0;
  std::int64_t of = 1;
  bool operator==(const RefreshPart&) const = default;
};

struct LayerShapes {
  FactorShape a;
  FactorShape g;
};

// The part of each layer where a refresh has so many parts, from 0. The heaviest layer first goes
// to the lightest part, by the arithmetic of its inversions, so that parts cost about the same. It
// depends on the shapes alone, so all ranks agree whatever their plan. Parts beyond the number of
// layers have none.
std::vector<int> refresh_parts(std::span<const LayerShapes> layers, std::int64_t parts);

}  // namespace spdkfac::plan
