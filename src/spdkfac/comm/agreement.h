// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

// Compares `value` across the ranks; all ranks call it together. If the values differ, every rank
// throws a ConfigError that names `what`, its own value and the ranks that differ from rank 0.
void require_same(Communicator& communicator, const std::string& what, const std::string& value);

}  // namespace spdkfac::comm
