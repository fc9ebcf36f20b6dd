// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

namespace spdkfac::trace {

// The words for lanes in files, in the order of the enumerators.
inline constexpr std::array<std::string_view, 2> kLaneNames = {"compute", "channel"};

}  // namespace spdkfac::trace
