# SPDX-License-Identifier: Apache-2.0
# Decides whether the build has MPI: SPDKFAC_WITH_MPI, the target MPI::MPI_C, and for tests
# MPIEXEC_EXECUTABLE. Only what is built on LibTorch communicates.

set(SPDKFAC_WITH_MPI FALSE)
if(SPDKFAC_WITH_TORCH AND NOT SPDKFAC_MPI STREQUAL "OFF")
  enable_language(C)  # the C interface is the only one that MPI has kept
  if(SPDKFAC_MPI STREQUAL "ON")
    find_package(MPI REQUIRED COMPONENTS C)
  else()
    find_package(MPI COMPONENTS C)
  endif()
  set(SPDKFAC_WITH_MPI ${MPI_C_FOUND})
endif()
