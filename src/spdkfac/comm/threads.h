// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "spdkfac/comm/comm_options.h"
#include "spdkfac/comm/communicator.h"

namespace spdkfac {

using RankFunction = std::function<void(const std::shared_ptr<Communicator>& communicator)>;

// Starts `size` threads, calls `function` in each with the communicator of one rank, and joins
// them: several ranks in one process, for tests and small experiments. Takes CPU tensors only;
// others are a ConfigError. Sums are added in the order of the ranks, so results are the same in
// every run.
//
// The first error that a rank throws is rethrown here, after all threads have ended. From then on
// the other ranks get a CommError that names the failed rank from every operation, also from those
// that they are waiting for. Ranks also get a CommError when their calls differ, when an operation
// does not end within the timeout, and when a rank returns without joining an operation. A thread
// cannot be killed: a function that never returns is waited for. Operations that all ranks have
// joined are completed even if no rank waits for them. The communicators end with run_ranks().
//
// Each thread starts with torch's defaults: gradients are on, and guards and captures of the
// calling thread do not apply. Give each rank its own model, optimizer and Preconditioner. All
// threads share torch's default random generator, so a rank that seeds it or draws from it disturbs
// the others: initialise models before run_ranks(), and use a generator per rank inside. Every
// thread has its own pool of at::get_num_threads() threads; call at::set_num_threads(1) before
// run_ranks() unless there are cores for all of them.
void run_ranks(int size, const RankFunction& function, const CommOptions& options = {});

}  // namespace spdkfac
