// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/number_text.h"

#include <fmt/format.h>

namespace spdkfac::report {

std::string milliseconds(Seconds time, int digits) {
  return fmt::format("{:.{}f}", 1e3 * time.value(), digits);
}

std::string megabytes(double bytes, int digits) {
  return fmt::format("{:.{}f}", bytes / 1e6, digits);
}

}  // namespace spdkfac::report
