// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/calibrate/calibration.h"

namespace spdkfac::cli {

// What was measured, and how well each form fits, for people.
std::string to_text(const Calibration& calibration);
// The same for programs: docs/formats.md, "Calibration".
Json to_json(const Calibration& calibration);

// The coefficients of a form, for people.
std::string coefficients_text(const CollectiveCost& affine);
std::string coefficients_text(const ExponentialInverse& exponential);
std::string coefficients_text(const CubicInverse& cubic);
std::string coefficients_text(const CostTable& table);
// [[size, seconds], …]
Json points_json(const std::vector<Measurement>& measurements);

// "41 s", "3.5 min".
std::string duration_text(Seconds time);

}  // namespace spdkfac::cli
