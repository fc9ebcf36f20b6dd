// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

// Runs `work` on rank 0, in a thread of its own; the others pass anything. Returns on all ranks
// when it is done, however long that takes: rank 0 says every `beat`, which is well below the
// communicator's timeout, that it still works. A rank 0 that dies is noticed within the timeout. An
// error of the work is thrown on rank 0, and a CommError that names `what` on the others.
void run_on_rank_zero(Communicator& communicator, std::chrono::milliseconds beat,
                      const std::string& what, const std::function<void()>& work);

}  // namespace spdkfac::comm
