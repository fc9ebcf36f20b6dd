// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace spdkfac {

// Sizes from `first` to `last`, each about `ratio` times the one before, rounded to a multiple;
// both ends are always there. first ≤ last, ratio > 1.
std::vector<std::int64_t> geometric_grid(std::int64_t first, std::int64_t last, double ratio,
                                         std::int64_t multiple);

}  // namespace spdkfac
