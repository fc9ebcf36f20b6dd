// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace spdkfac {

// The middle one, or the mean of the two in the middle. Of none: an InternalError.
double median(std::vector<double> values);

}  // namespace spdkfac
