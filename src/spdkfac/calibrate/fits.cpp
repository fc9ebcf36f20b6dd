// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/fits.h"

#include <cmath>

#include "spdkfac/calibrate/grid.h"

namespace spdkfac::calibrate {
namespace {

// Far above the dimensions of networks; and what no plan would wait for.
constexpr std::int64_t kLargestDim = 65536;
constexpr Seconds kLongest{3600};

CostTable go_on_with_cube(const CostTable& table) {
  auto points = table.points();
  const auto [dim, seconds] = points.back();
  const std::int64_t last = std::llround(dim);
  if (last >= kLargestDim) return table;
  // Steps in which a straight line is at most a tenth above the cube.
  for (const std::int64_t next : geometric_grid(last, kLargestDim, std::sqrt(2.0), 1)) {
    const Seconds then = seconds * std::pow(static_cast<double>(next) / dim, 3);
    if (then > kLongest) break;
    if (next > last) points.emplace_back(static_cast<double>(next), then);
  }
  return CostTable(std::move(points));
}

}  // namespace

CollectiveCost CollectiveFits::chosen() const {
  return takes_table() ? CollectiveCost(table.model) : affine.model;
}

CollectiveFits fit_collective_times(const CollectiveTimes& times) {
  return {.measured = times,
          .affine = plan::fit_collective(times.times),
          .table = plan::fit_table(times.times)};
}

InverseCost InverseFits::chosen() const {
  if (takes_table()) return go_on_with_cube(table.model);
  return cubic.model;
}

InverseFits fit_inverse_times(const std::vector<plan::Measurement>& times) {
  return {.measured = times,
          .exponential = plan::fit_exponential(times),
          .cubic = plan::fit_cubic(times),
          .table = plan::fit_table(times)};
}

}  // namespace spdkfac::calibrate
