// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "spdkfac/comm/comm_options.h"
#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Whether this program was built with MPI.
bool built_with_mpi();

// Whether a launcher (mpirun, srun with PMIx, …) started this process, even as the only rank. Reads
// the environment and does not call MPI.
bool launched_by_mpi();

// All ranks of MPI_COMM_WORLD; one such communicator may exist at a time. Takes CPU tensors, and
// CUDA tensors through pinned memory. Initialises MPI at the first call and finalises it at exit if
// no operation failed and all ranks reach their end within the timeout. When a rank dies, stays
// silent for longer than the timeout or calls a different collective, the others get a CommError,
// and MPI cannot be used again in this process. The destructor waits for the operations under way,
// except while an exception unwinds the stack. Throws a ConfigError in a build without MPI, or when
// the MPI library does not support threads.
std::shared_ptr<Communicator> make_mpi_communicator(const CommOptions& options = {});

// Ends all ranks of the job after an error that the others cannot see; without a job, ends this
// process. Call it from the main thread, after printing the message.
[[noreturn]] void abort_job(int exit_code);

}  // namespace spdkfac
