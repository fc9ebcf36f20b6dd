// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>

#include "spdkfac/base/factor_side.h"

namespace spdkfac::runtime {

// A factor of one of the tracked layers.
struct FactorId {
  std::size_t layer = 0;
  FactorSide side = FactorSide::kA;
  auto operator<=>(const FactorId&) const = default;
};

}  // namespace spdkfac::runtime
