// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/runtime/distribution.h"

namespace spdkfac::python {

// Opaque to Python: where the plans of a Preconditioner come from.
struct PlanSourceHandle {
  PlanSource source;
};

}  // namespace spdkfac::python
