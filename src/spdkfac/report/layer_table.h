// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/plan/layer_spec.h"

namespace spdkfac::report {

// The layers of a model as a table for people.
std::string layer_table(const ModelSpec& model);

}  // namespace spdkfac::report
