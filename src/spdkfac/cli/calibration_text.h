// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/base/json.h"
#include "spdkfac/calibrate/calibration.h"

namespace spdkfac::cli {

// What was measured, and how well each form fits, for people.
std::string to_text(const calibrate::Calibration& calibration);
// The same for programs: docs/formats.md, "Calibration".
Json to_json(const calibrate::Calibration& calibration);

// "41 s", "3.5 min".
std::string duration_text(Seconds time);

}  // namespace spdkfac::cli
