// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "spdkfac/comm/emulated_link.h"
#include "support/world.h"

namespace spdkfac::support {

// The ranks of the test behind a link that is so slow that nothing else counts: a start-up of 20 ms
// and 4 µs an element, half of both for what is no all-reduce.
inline constexpr double kAlpha = 20e-3;
inline constexpr double kBeta = 4e-6;

inline EmulatedLink emulated_world() {
  const auto inner = world();
  const int ranks = inner->size();
  return EmulatedLink(inner, [ranks](Operation operation, const Load& load) {
    const std::int64_t elements = load.elements;
    if (operation == Operation::kBarrier) return Seconds(0);
    const double share = operation == Operation::kAllReduce ? 1 : 0.5;
    const double result = operation == Operation::kAllGather ? static_cast<double>(elements * ranks)
                                                             : static_cast<double>(elements);
    return Seconds(share * (kAlpha + kBeta * result));
  });
}

}  // namespace spdkfac::support
