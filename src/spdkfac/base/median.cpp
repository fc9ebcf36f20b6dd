// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/median.h"

#include <algorithm>

#include "spdkfac/base/check.h"

namespace spdkfac {

double median(std::vector<double> values) {
  SPDKFAC_CHECK(!values.empty(), "a median of nothing");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace spdkfac
