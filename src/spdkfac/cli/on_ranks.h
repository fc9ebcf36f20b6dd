// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace spdkfac::cli {

// Runs what may be on several ranks: a rank that fails takes the others along, which would wait for
// it, and errors of torch are told without their stack.
void run_on_ranks(const std::function<void()>& body);

}  // namespace spdkfac::cli
