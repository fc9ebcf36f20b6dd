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

// The ranks of a process group of torch.distributed: gloo, nccl, mpi. The group must be for this
// communicator alone, since others would mix their operations with its. Tensors that the group does
// not take go through `device`: on NCCL those of the host. wait() is that of the group: on NCCL it
// lets the current stream wait, otherwise the host. An operation that fails, or that takes longer
// than the timeout, is a CommError there and at every later call; on NCCL torch's own watchdog ends
// the process.
std::shared_ptr<Communicator> make_c10d_communicator(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                     c10::Device device,
                                                     const CommOptions& options = {});

}  // namespace spdkfac
