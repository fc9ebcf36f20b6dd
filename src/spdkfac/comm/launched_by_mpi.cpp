// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>

#include "spdkfac/comm/mpi.h"

namespace spdkfac {

bool launched_by_mpi() {
  // Open MPI; MPICH, Intel MPI and srun --mpi=pmi2; srun --mpi=pmix; MVAPICH; Cray's aprun.
  constexpr std::array kVariables{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",   "PMI_RANK", "PMIX_RANK",
                                  "MV2_COMM_WORLD_SIZE",  "PALS_RANKID"};
  return std::any_of(kVariables.begin(), kVariables.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

}  // namespace spdkfac
