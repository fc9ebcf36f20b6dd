// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

// Executes one operation for all ranks: `requests` has one request per rank, in the order of the
// ranks and with equal signatures, on CPU tensors. Adds in the order of the ranks.
void execute_collective(std::span<const Request> requests);

}  // namespace spdkfac::comm
