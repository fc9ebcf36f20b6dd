// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <mpi.h>

namespace spdkfac {

// Our own copy of MPI_COMM_WORLD: messages of others do not meet ours.
struct MpiWorld {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
};

// Throws a CommError with MPI's own message unless `code` is a success; `place` says what for.
void check_mpi(int code, const char* call, const std::string& place);

}  // namespace spdkfac
