// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "spdkfac/comm/comm_options.h"
#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Whether this program was built with MPI.
bool built_with_mpi();

// Whether a launcher (mpirun, srun with PMIx, …) has started this process, be it as the only rank:
// read from the environment, without touching MPI.
bool launched_by_mpi();

// All ranks of the MPI world; one such communicator at a time. CPU tensors, and CUDA tensors
// through pinned memory of the host. Initialises MPI at the first call; it is finalised at the exit
// of the process if no operation has failed and all ranks end within the timeout. A rank that is
// dead, silent for longer than the timeout or starts another operation is a CommError on the
// others; then MPI cannot be used again in this process. Destruction waits for what is under way,
// except while an exception passes. Without MPI in the build, or without its threads, a
// ConfigError.
std::shared_ptr<Communicator> make_mpi_communicator(const CommOptions& options = {});

// Ends all ranks of the job; for errors that the others cannot know of. Without a job, of this
// process alone. Call it from the main thread, after the message was printed.
[[noreturn]] void abort_job(int exit_code);

}  // namespace spdkfac
