// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/comm/comm_options.h"
#include "spdkfac/comm/mpi/mpi_world.h"

namespace spdkfac::comm {

// The object that calls MPI; at most one exists at a time.
class MpiUser {
 public:
  virtual ~MpiUser() = default;
  // Called when the process exits while the object exists. It must not call MPI after returning.
  virtual void stop_at_exit() noexcept = 0;
};

// Initialises MPI for the process at the first call, on all ranks together; at exit it is finalised
// if no user has failed. Throws a ConfigError without MPI_THREAD_MULTIPLE or while another user
// exists, and a CommError if an earlier user failed or the other ranks do not call it within the
// timeout.
MpiWorld begin_using_mpi(MpiUser& user, const CommOptions& options);
// `failure`: why MPI must not be used again; empty after a success.
void end_using_mpi(const std::string& failure);

}  // namespace spdkfac::comm
