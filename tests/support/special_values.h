// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

namespace spdkfac {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace spdkfac
