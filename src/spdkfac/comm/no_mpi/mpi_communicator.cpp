// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/mpi.h"

namespace spdkfac {

bool built_with_mpi() { return false; }

std::shared_ptr<Communicator> make_mpi_communicator(const CommOptions&) {
  throw ConfigError(
      "mpi: this build has no MPI; install it (Debian: libopenmpi-dev) and build again with "
      "-DSPDKFAC_MPI=ON, which reports what is missing");
}

void abort_job(int exit_code) { std::_Exit(exit_code); }

}  // namespace spdkfac
