// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include "spdkfac/runtime/distribution.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/tracked_layer.h"

// Ranks that differ would send different messages and wait for each other; so they compare first.
// All ranks call these functions together; a difference is a ConfigError on all of them.
namespace spdkfac::runtime {

// What ranks are started with. The distribution has a communicator.
void require_same_start(const Distribution& distribution, const KfacOptions& options,
                        const std::vector<TrackedLayer>& layers,
                        const std::vector<at::Tensor>& parameters);

// What they have loaded: `failure` is why this rank could not, or null. Throws it.
void require_same_steps(Communicator& communicator, std::int64_t steps,
                        const std::exception_ptr& failure);

}  // namespace spdkfac::runtime
