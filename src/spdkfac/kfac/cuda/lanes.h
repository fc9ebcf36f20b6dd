// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace spdkfac::kfac {

// Work of a graph runs side by side on so many streams; each has a work space of cuBLAS.
constexpr std::size_t kLanes = 6;

// The tasks of each lane: the most costly one goes to the lane that has least to do, and so on.
inline std::array<std::vector<std::size_t>, kLanes> spread_over_lanes(
    const std::vector<double>& costs) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t left, std::size_t right) { return costs[left] > costs[right]; });
  std::array<std::vector<std::size_t>, kLanes> lanes;
  std::array<double, kLanes> load{};
  for (const std::size_t task : order) {
    const auto lane = static_cast<std::size_t>(
        std::distance(load.begin(), std::min_element(load.begin(), load.end())));
    load[lane] += costs[task];
    lanes[lane].push_back(task);
  }
  return lanes;
}

}  // namespace spdkfac::kfac
