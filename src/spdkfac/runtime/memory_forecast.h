// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "spdkfac/base/units.h"
#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/runtime/factor_id.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// What K-FAC holds on a rank, known before any of it is taken.
struct MemoryForecast {
  std::vector<Bytes> layers;  // sums, averages, inverses and moments of each
  Bytes messages;
  Bytes scratch;  // for the preconditioning of one layer

  Bytes total() const;
};

// Which of a factor's averages and inverses a rank keeps.
struct KeptParts {
  bool average = true;
  bool inverse = true;
};
using PartsOf = std::function<KeptParts(FactorId)>;
MemoryForecast forecast_memory(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
                               const PartsOf& parts);
// The elements that are sent in a step.
std::int64_t elements_sent(const Plan& plan, const ModelSpec& model);

// What is free where the layers are, if that can be told: the system's memory, or the device's with
// what torch holds of it unused.
std::optional<Bytes> free_memory(at::Device device);

// A ConfigError where the forecast exceeds the limit of the options, or else what is free and
// `held` already; it names the largest layers and what would make it fit. All ranks call it
// together, and all of them fail if one does.
void require_memory(Communicator& communicator, const std::vector<TrackedLayer>& layers,
                    const KfacOptions& options, const PartsOf& parts, Bytes messages, Bytes held);

}  // namespace spdkfac::runtime
