// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/layer_spec.h"

#include <numeric>

namespace spdkfac {

const std::vector<std::string>& layer_kind_names() {
  static const std::vector<std::string> names = {
      "conv2d",           "linear",           "conv1d",        "conv3d",    "conv_transpose1d",
      "conv_transpose2d", "conv_transpose3d", "linear_in_out", "embedding", "norm"};
  return names;
}

std::int64_t LayerSpec::gradient_elements() const {
  return std::accumulate(gradients.begin(), gradients.end(), std::int64_t{0});
}

}  // namespace spdkfac
