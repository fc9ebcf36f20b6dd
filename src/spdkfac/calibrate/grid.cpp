// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/grid.h"

#include <cmath>

#include <fmt/format.h>

#include "spdkfac/base/check.h"

namespace spdkfac {

std::vector<std::int64_t> geometric_grid(std::int64_t first, std::int64_t last, double ratio,
                                         std::int64_t multiple) {
  SPDKFAC_CHECK(first >= 1 && first <= last && ratio > 1 && multiple >= 1,
                fmt::format("a grid from {} to {} by {}", first, last, ratio));
  std::vector<std::int64_t> sizes{first};
  for (double size = static_cast<double>(first) * ratio;; size *= ratio) {
    const std::int64_t rounded = std::llround(size / static_cast<double>(multiple)) * multiple;
    // A last step that is much shorter than the others would say nothing new.
    if (static_cast<double>(rounded) * std::sqrt(ratio) >= static_cast<double>(last)) break;
    if (rounded > sizes.back()) sizes.push_back(rounded);
  }
  if (last > first) sizes.push_back(last);
  return sizes;
}

}  // namespace spdkfac
