// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/base/json.h"
#include "spdkfac/plan/cost_model.h"

// The JSON side of CostModel, for sources only.
namespace spdkfac {

CostModel parse_cluster(const Json& document, const std::string& where);
Json to_json(const CostModel& costs);

}  // namespace spdkfac
