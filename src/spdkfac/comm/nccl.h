// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "spdkfac/comm/comm_options.h"
#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Whether this program was built with NCCL.
bool built_with_nccl();

// The ranks of `bootstrap`, each with a GPU of its own; all of them call it. Operations run on a
// stream of high priority behind what is queued on the current stream when they are started; wait()
// lets the current stream wait, never the host. Barriers and tensors of the host go to `bootstrap`.
// A peer that fails or does not answer within the timeout is a CommError at the next call.
// Without NCCL in the build, or with two ranks on one GPU, a ConfigError.
std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> bootstrap,
                                                     at::Device device,
                                                     const CommOptions& options = {});

}  // namespace spdkfac
