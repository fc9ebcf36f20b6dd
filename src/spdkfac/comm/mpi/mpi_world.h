// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <mpi.h>

namespace spdkfac::comm {

// A duplicate of MPI_COMM_WORLD, so that messages of other code cannot match ours.
struct MpiWorld {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
};

// Throws a CommError with MPI's message unless `code` is MPI_SUCCESS; `place` names the operation.
void check_mpi(int code, const char* call, const std::string& place);

}  // namespace spdkfac::comm
