// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/comm/comm_options.h"
#include "spdkfac/comm/mpi/mpi_world.h"

namespace spdkfac {

// Who calls MPI; at most one lives at a time.
class MpiUser {
 public:
  virtual ~MpiUser() = default;
  // The process exits while it lives: makes no more calls when this returns.
  virtual void stop_at_exit() noexcept = 0;
};

// MPI belongs to the process, so this is a state of the process: it is initialised at the first
// call, on all ranks together, and finalised at exit if no user has failed.
// A ConfigError without MPI_THREAD_MULTIPLE or while another user lives; a CommError when a user
// has failed before, or when the other ranks do not come within the timeout.
MpiWorld begin_using_mpi(MpiUser& user, const CommOptions& options);
// `failure`: why MPI must not be used any more; empty if all went well.
void end_using_mpi(const std::string& failure);

}  // namespace spdkfac
