// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/base/json.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/plan/refresh_intervals.h"

// The JSON side of PlanOptions, for sources only.
namespace spdkfac {

Json to_json(const PlanOptions& options);
// Reads the fields that to_json() writes, all of them and no others.
PlanOptions parse_plan_options(const JsonValue& value, const std::string& algorithm);

// As plan and advice files have them: the options and the two intervals in one object.
struct OptionsAndIntervals {
  PlanOptions options;
  RefreshIntervals intervals;
};
Json to_json(const OptionsAndIntervals& both);
OptionsAndIntervals parse_options_and_intervals(const JsonValue& value,
                                                const std::string& algorithm);

}  // namespace spdkfac
