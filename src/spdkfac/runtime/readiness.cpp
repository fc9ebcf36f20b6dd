// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/readiness.h"

namespace spdkfac::runtime {

Readiness::Readiness(const std::vector<std::size_t>& gradients) {
  zero_.calls.assign(2 * gradients.size(), 0);
  for (const std::size_t count : gradients) zero_.gradients.emplace_back(count, 0);
  counts_ = zero_;
}

void Readiness::begin() { counts_ = zero_; }

void Readiness::end() {
  if (!expected_) expected_ = counts_;
}

}  // namespace spdkfac::runtime
