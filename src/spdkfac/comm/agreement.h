// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Compares `value` over the ranks; all of them call it. Where it differs, every rank throws a
// ConfigError that names `what`, its own value and the ranks that differ from rank 0.
void require_same(Communicator& communicator, const std::string& what, const std::string& value);

}  // namespace spdkfac
