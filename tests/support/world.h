// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "spdkfac/comm/comm_options.h"
#include "spdkfac/comm/communicator.h"

// For test programs of spdkfac_test(… MPI_RANKS …): all ranks run the same tests in the same order.
namespace spdkfac::support {

// The ranks of mpirun, or this process alone without it. Made at the first call.
std::shared_ptr<Communicator> world();

// Drops the communicator of world(); the next call makes a new one.
void drop_world();

// Replaces it by one with other options, for one test, which calls drop_world() at its end.
std::shared_ptr<Communicator> world_with(const CommOptions& options);

}  // namespace spdkfac::support
