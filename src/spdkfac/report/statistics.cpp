// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/statistics.h"

#include <algorithm>
#include <cmath>

#include "spdkfac/base/check.h"

namespace spdkfac {

double quantile(std::vector<double> samples, double share) {
  SPDKFAC_CHECK(!samples.empty() && share >= 0 && share <= 1, "a quantile of nothing");
  std::sort(samples.begin(), samples.end());
  const double place = share * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (place - static_cast<double>(below)) * (samples[above] - samples[below]);
}

Spread spread_of(const std::vector<double>& samples) {
  return {quantile(samples, 0.5), quantile(samples, 0.25), quantile(samples, 0.75)};
}

}  // namespace spdkfac
