// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include "spdkfac/comm/comm_options.h"
#include "spdkfac/comm/communicator.h"

namespace c10d {
class ProcessGroup;
}

namespace spdkfac {

// The ranks of a torch.distributed process group (gloo, nccl or mpi). Use the group for this
// communicator only: operations of other code would mix with its own. Tensors that the group does
// not support travel through `device`; on NCCL these are the CPU tensors. wait() behaves as the
// group's does: on NCCL the current stream waits, otherwise the host. An operation that fails or
// takes longer than the timeout throws a CommError, and so does every later call; on NCCL torch's
// own watchdog ends the process.
std::shared_ptr<Communicator> make_c10d_communicator(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                     c10::Device device,
                                                     const CommOptions& options = {});

}  // namespace spdkfac
