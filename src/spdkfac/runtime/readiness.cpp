// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/readiness.h"

#include <algorithm>

namespace spdkfac::runtime {

Readiness::Readiness(const std::vector<std::size_t>& gradients) {
  zero_.calls.assign(2 * gradients.size(), 0);
  for (const std::size_t count : gradients) zero_.gradients.emplace_back(count, 0);
  counts_ = zero_;
}

void Readiness::begin() { counts_ = zero_; }

void Readiness::end(std::int64_t passes) {
  if (expected_) return;
  expected_ = counts_;
  expected_->passes = passes;
}

bool Readiness::gradients_complete(std::size_t layer) const {
  const std::vector<std::int64_t>& expected = expected_->gradients[layer];
  return counts_.gradients[layer] == expected &&
         std::find(expected.begin(), expected.end(), 0) == expected.end();
}

}  // namespace spdkfac::runtime
