// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/base/trace.h"
#include "spdkfac/cli/ranks.h"
#include "spdkfac/runtime/preconditioner.h"

namespace spdkfac::cli {

// The last step of all ranks on the clock of the first one; it begins where the first of them
// began. On other ranks than the first: this rank's alone. All ranks call it together.
Trace trace_of_ranks(const Ranks& ranks, Preconditioner& kfac);

}  // namespace spdkfac::cli
