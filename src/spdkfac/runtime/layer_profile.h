// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "spdkfac/runtime/rank_profile.h"
#include "spdkfac/runtime/step_events.h"

namespace spdkfac::runtime {

// Steps of a run that were recorded, one after the other.
using RecordedEvents = std::vector<std::shared_ptr<const StepEvents>>;

// What layers took in these steps on this rank. What lies between two visits of the capture is the
// forward pass up to a layer, or the backward pass behind it. The first forward pass has no visit
// before it: its time is set from that of the others, by their arithmetic, and no part of a step
// has it. Clipping is spread by the size of gradients; what was not preconditioned or inverted here
// has no time for it. `order` has the tracked layer of each spec. On a GPU this waits.
RankProfile profile_of(const RecordedEvents& steps, const std::vector<LayerSpec>& specs,
                       const std::vector<std::size_t>& order);

}  // namespace spdkfac::runtime
