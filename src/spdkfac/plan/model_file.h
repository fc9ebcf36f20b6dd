// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/base/json.h"
#include "spdkfac/plan/layer_spec.h"

// The JSON side of ModelSpec, for sources only.
namespace spdkfac {

ModelSpec parse_model(const Json& document, const std::string& where);
Json to_json(const ModelSpec& model);

}  // namespace spdkfac
