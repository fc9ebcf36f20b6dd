// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "spdkfac/comm/comm_options.h"
#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Whether this program was built with NCCL.
bool built_with_nccl();

// The ranks of `bootstrap`, each with its own GPU; all ranks call it together. Operations run on a
// high-priority stream, after the work that is queued on the current stream when they start. wait()
// makes the current stream wait, never the host. Barriers and CPU tensors go to `bootstrap`.
// After a rank has failed or has not answered within the timeout, the next call throws a CommError.
// Throws a ConfigError in a build without NCCL, or when two ranks use the same GPU.
std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> bootstrap,
                                                     at::Device device,
                                                     const CommOptions& options = {});

}  // namespace spdkfac
