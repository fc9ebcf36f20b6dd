// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "spdkfac/plan/plan.h"

namespace spdkfac::runtime {

// What is due in a step.
struct StepWork {
  bool factors = false;
  bool inverses = false;
  std::int64_t step = 0;
  // Where inverses are due, the layers of the bank that renew theirs; empty: all.
  std::vector<bool> renewed = {};

  bool renews(std::size_t layer) const { return renewed.empty() || renewed[layer]; }

  StepKind kind() const {
    if (inverses) return StepKind::kFull;
    return factors ? StepKind::kFactors : StepKind::kGradients;
  }
};

}  // namespace spdkfac::runtime
