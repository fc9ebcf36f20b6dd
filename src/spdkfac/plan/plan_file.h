// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/base/json.h"
#include "spdkfac/plan/plan.h"

// The JSON side of Plan, for sources only.
namespace spdkfac {

Json to_json(const Plan& plan);
Plan parse_plan(const Json& document, const std::string& where);

}  // namespace spdkfac
