// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/base/units.h"

namespace spdkfac::report {

// Numbers of tables, without their unit, which stands in the title.
std::string milliseconds(Seconds time, int digits = 1);
std::string megabytes(double bytes, int digits = 1);  // of 1e6 bytes

}  // namespace spdkfac::report
