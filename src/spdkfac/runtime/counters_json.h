// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/runtime/kfac_counters.h"

namespace spdkfac::runtime {

// Each counter by its name in files and in Python.
std::vector<std::pair<const char*, std::int64_t KfacCounters::*>> counter_fields();

Json counters_json(const KfacCounters& counters);
KfacCounters parse_counters(const std::string& text, const std::string& where);

}  // namespace spdkfac::runtime
