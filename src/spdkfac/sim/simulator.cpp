// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/simulator.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/sim/inverse_stage.h"
#include "spdkfac/sim/passes_stage.h"
#include "spdkfac/sim/simulated_ranks.h"
#include "spdkfac/trace/breakdown.h"

namespace spdkfac {
namespace {

void validate(const SimulationOptions& options, int world) {
  for (const auto& [rank, factor] : options.slow) {
    if (rank < 0 || rank >= world) {
      throw ConfigError(
          fmt::format("simulate: slow rank {}:{} does not exist (world={}); use a "
                      "rank from 0 to {} and a factor above 0",
                      rank, factor, world, world - 1));
    }
    if (!(factor > 0) || !std::isfinite(factor)) {
      throw ConfigError(
          fmt::format("simulate: slow rank {} cannot take {} times as long; use a "
                      "finite factor above 0",
                      rank, factor));
    }
  }
  SPDKFAC_CHECK(
      options.slow_parts.empty() || options.slow_parts.size() == static_cast<std::size_t>(world),
      "slowness of parts for some ranks");
  if (!(options.jitter >= 0 && options.jitter < 1)) {
    throw ConfigError(
        fmt::format("simulate: jitter={} is out of range; use 0 to below 1", options.jitter));
  }
}

}  // namespace

IterationResult simulate(const Plan& plan, const ModelSpec& model, const CostModel& costs,
                         const SimulationOptions& options) {
  validate(options, plan.world);
  SPDKFAC_CHECK(!model.layers.empty(), "a model without layers");
  SPDKFAC_CHECK(options.renewed.empty() || options.renewed.size() == model.layers.size(),
                "some layers are neither renewed nor not");
  const CostModel here = costs.for_world(plan.world);
  const sim::StepToSimulate step{plan,
                                 model,
                                 here,
                                 layer_costs(model, here, plan.options),
                                 worker_grid(plan.options, plan.world),
                                 options.renewed};
  sim::SimulatedRanks ranks(step, options);
  sim::simulate_passes(step, ranks);
  std::vector<Seconds> inverse_load(ranks.streams());
  if (plan.options.second_order()) inverse_load = sim::simulate_inverse_stage(step, ranks);
  IterationResult result;
  result.trace = ranks.take_trace();
  result.iteration = ranks.last();
  result.inverse_load = ranks.by_rank(inverse_load);
  result.sent_bytes = bytes_per_worker(plan, model, options.renewed);
  if (options.trace) {
    result.breakdown = breakdown(result.trace, critical_rank(result.trace));
    result.factor_messages = factor_messages(result.trace);
  }
  return result;
}

double bytes_per_worker(const Plan& plan, const ModelSpec& model,
                        const std::vector<bool>& renewed) {
  const double share = (plan.world - 1.0) / plan.world;
  double elements = 0;
  for (const Message& message : plan.messages) {
    const double rounds = message.route.op == CollectiveOp::kAllReduce ? 2 : 1;
    const auto counts = std::count_if(message.members.begin(), message.members.end(), is_factor);
    elements += rounds * static_cast<double>(message.elements + counts);
  }
  elements *= share;
  for (const ResultBroadcast& step : result_broadcasts(plan, model)) {
    if (!sim::leaves(step, plan, renewed)) continue;
    elements += static_cast<double>(step.received_elements()) / plan.world;
  }
  return elements * kBytesPerElement;
}

}  // namespace spdkfac
