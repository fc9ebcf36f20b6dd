// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "spdkfac/base/units.h"

namespace spdkfac {

// What happened so far on this rank; see docs/errors.md for what each means.
struct KfacCounters {
  std::int64_t steps = 0;
  std::int64_t factor_updates = 0;          // factors averaged in
  std::int64_t inverse_updates = 0;         // inverses refreshed
  std::int64_t inverses_skipped = 0;        // left as they were: their factors had not moved
  std::int64_t nonfinite_factors = 0;       // factors with NaN or Inf, left out
  std::int64_t inverse_retries = 0;         // inversions that needed more damping
  std::int64_t inverses_kept = 0;           // refreshes that kept the previous inverse
  std::int64_t nonfinite_gradients = 0;     // steps whose gradients were set to zero
  std::int64_t layers_without_factors = 0;  // gradients left as they were, for lack of a capture
  std::int64_t layers_scaled =
      0;  // gradients scaled like those of other layers, for lack of inverses
};

// Bytes held between steps on this rank.
struct KfacMemory {
  Bytes factors;
  Bytes inverses;  // and what goes with them, as Adam's moments
  Bytes buffers;   // this batch's sums, messages, scratch
};

}  // namespace spdkfac
