// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/serialize/archive.h>

#include "spdkfac/runtime/factor_bank.h"

namespace spdkfac::runtime {

// Everything of all layers that later steps depend on. Loading checks that the state is one of this
// model and of options that compute the same; if not, a ConfigError says what differs.
void save_state(torch::serialize::OutputArchive& archive, const FactorBank& bank,
                const KfacCounters& counters, const KfacOptions& options);
// Returns the counters.
KfacCounters load_state(torch::serialize::InputArchive& archive, FactorBank& bank,
                        const KfacOptions& options);

}  // namespace spdkfac::runtime
