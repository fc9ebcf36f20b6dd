// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/layer_spec.h"

#include <numeric>

namespace spdkfac {

std::int64_t LayerSpec::gradient_elements() const {
  return std::accumulate(gradients.begin(), gradients.end(), std::int64_t{0});
}

}  // namespace spdkfac
