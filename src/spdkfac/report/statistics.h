// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace spdkfac {

// The value below which `share` (0 to 1) of the samples lie, interpolated between neighbours. At
// least one sample.
double quantile(std::vector<double> samples, double share);

struct Spread {
  double median = 0;
  double low = 0;   // first quartile
  double high = 0;  // third quartile
};
Spread spread_of(const std::vector<double>& samples);

}  // namespace spdkfac
