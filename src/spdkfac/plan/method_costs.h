// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/base/units.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan_options.h"

// Arithmetic of K-FAC's solvers and of the methods that compete with K-FAC; docs/cost-models.md has
// the sources.
namespace spdkfac::plan {

// 2·d_A·d_G·(d_A+d_G) for each group: a gradient multiplied by a matrix on each side, as in
// G⁻¹·∇W·A⁻¹. Of matrices in blocks the sum has the dimension of a block.
Flops two_sided_flops(const LayerSpec& layer);

// The statistics that one side of the averaged gradient adds to: ∇Wᵀ·∇W for A, ∇W·∇Wᵀ for G.
Flops statistics_flops(const LayerSpec& layer, FactorSide side, Method method);

// What turns the gradient of a step into an update.
Flops update_flops(const LayerSpec& layer, Method method);

// What a refresh makes of a matrix (inverse, inverse root, eigenbasis), in inversions by Cholesky,
// which the cluster's costs are for.
double refresh_in_inversions(Method method);
// The same of K-FAC's solvers.
double refresh_in_inversions(Solver solver);
// How often a solver multiplies a gradient on both sides in a step.
double two_sided_products(Solver solver);

}  // namespace spdkfac::plan
