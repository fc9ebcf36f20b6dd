// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/grid.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "spdkfac/base/check.h"

namespace spdkfac::calibrate {
namespace {

constexpr std::int64_t kDimMultiple = 32;
constexpr std::int64_t kSmallestWithNeighbours = 512;

}  // namespace

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

std::vector<std::int64_t> inverse_grid(std::int64_t first, std::int64_t last, double ratio) {
  std::vector<std::int64_t> dims;
  for (const std::int64_t dim : geometric_grid(first, last, ratio, kDimMultiple)) {
    const bool alone =
        dim < kSmallestWithNeighbours || !std::has_single_bit(static_cast<std::uint64_t>(dim));
    if (!alone) dims.push_back(dim - kDimMultiple);
    dims.push_back(dim);
    if (!alone && dim < last) dims.push_back(dim + kDimMultiple);
  }
  return dims;
}

}  // namespace spdkfac::calibrate
