// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "spdkfac/plan/compute_stream.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/plan.h"

namespace spdkfac::plan {

// Which tensors share a message, in launch order, for a step whose factors are placed already.
// Ready times are those of the stream running at full speed. Gradients fuse by threshold
// whatever the rule for factors, except kOptimal, which plans all tensors in one sequence.
std::vector<Message> plan_messages(const ModelSpec& model, const ComputeStream& stream,
                                   const CostModel& costs, const PlanOptions& options,
                                   std::span<const FactorPlacement> factors);

// `pi` damping needs the mean of the diagonals of both factors of a layer. Where factors are
// reduced to owners that send inverses, nobody may hold both, so the means travel in this message
// before the inversions.
std::optional<Message> diagonal_means_message(const ModelSpec& model, const PlanOptions& options,
                                              std::span<const FactorPlacement> factors);

}  // namespace spdkfac::plan
