// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/trace/statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "spdkfac/base/check.h"

namespace spdkfac::trace {

double quantile(std::vector<double> samples, double share) {
  SPDKFAC_CHECK(!samples.empty() && share >= 0 && share <= 1, "a quantile of nothing");
  std::sort(samples.begin(), samples.end());
  const double place = share * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (place - static_cast<double>(below)) * (samples[above] - samples[below]);
}

std::size_t middle_sample(const std::vector<double>& samples) {
  SPDKFAC_CHECK(!samples.empty(), "the middle of nothing");
  std::vector<std::size_t> order(samples.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>((samples.size() - 1) / 2);
  std::nth_element(order.begin(), middle, order.end(), [&](std::size_t one, std::size_t other) {
    return samples[one] < samples[other] || (samples[one] == samples[other] && one < other);
  });
  return *middle;
}

Spread spread_of(const std::vector<double>& samples) {
  return {quantile(samples, 0.5), quantile(samples, 0.25), quantile(samples, 0.75)};
}

ConfidenceInterval median_interval(std::vector<double> samples) {
  SPDKFAC_CHECK(!samples.empty(), "an interval of nothing");
  std::sort(samples.begin(), samples.end());
  const std::size_t count = samples.size();
  // The median is below the sample number k with the chance of fewer than k heads among `count`
  // coins; the largest k for which that is at most one in forty.
  constexpr double kTail = 0.025;
  double chance = std::pow(0.5, static_cast<double>(count));
  double below = chance;
  std::size_t k = 0;
  while (below <= kTail) {
    ++k;
    chance *= static_cast<double>(count - k + 1) / static_cast<double>(k);
    below += chance;
  }
  if (k == 0) return {samples.front(), samples.back()};
  return {samples[k - 1], samples[count - k]};
}

Difference paired_difference(const std::vector<double>& first, const std::vector<double>& second) {
  SPDKFAC_CHECK(first.size() == second.size(), "samples that are not in pairs");
  std::vector<double> differences(first.size());
  std::transform(second.begin(), second.end(), first.begin(), differences.begin(),
                 std::minus<double>());
  return {quantile(differences, 0.5), median_interval(differences)};
}

}  // namespace spdkfac::trace
