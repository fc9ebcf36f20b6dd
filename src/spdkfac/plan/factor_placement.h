// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan.h"

namespace spdkfac::plan {

// A factor of the layer of this number in a plan, that every rank inverts.
FactorPlacement unowned(int layer, const FactorShape& shape, FactorSide side);

// Who inverts which factor and what is exchanged, in the order of inversion: A_0, G_0, A_1, G_1, …
// Where owners send gradients, what they own comes first, in order of modelled completion, so that
// broadcasts start early and nobody waits behind the largest inverse. `costs` is for this world.
std::vector<FactorPlacement> place_factors(const ModelSpec& model,
                                           std::span<const LayerCosts> layers,
                                           const CostModel& costs, const PlanOptions& options,
                                           const RefreshIntervals& intervals);

}  // namespace spdkfac::plan
