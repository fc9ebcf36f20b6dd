// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "spdkfac/base/factor_shape.h"
#include "spdkfac/base/factor_side.h"
#include "spdkfac/base/log.h"
#include "spdkfac/kfac/modes.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// The shape of a layer's factor: what its kind says, split where it is above the limit. Every part
// of the library asks here.
FactorShape factor_shape(const TrackedLayer& layer, FactorSide side, const FactorLimit& limit);

// Says which factors the limit splits.
void log_split_factors(const std::vector<TrackedLayer>& layers, const FactorLimit& limit,
                       Logger& logger);

}  // namespace spdkfac::runtime
