// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace spdkfac::calibrate {

// Sizes from `first` to `last`, each about `ratio` times the one before, rounded to a multiple;
// both ends are always there. first ≤ last, ratio > 1.
std::vector<std::int64_t> geometric_grid(std::int64_t first, std::int64_t last, double ratio,
                                         std::int64_t multiple);

// Such a grid with a neighbour on either side of each power of two from 512 on: there columns share
// lines of the cache and inversions take up to half as long again, so such a point alone would
// mislead about what lies around it.
std::vector<std::int64_t> inverse_grid(std::int64_t first, std::int64_t last, double ratio);

}  // namespace spdkfac::calibrate
