// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/calibration.h"

#include <chrono>

#include <fmt/format.h>

#include "spdkfac/base/host.h"
#include "spdkfac/calibrate/computation.h"
#include "spdkfac/calibrate/contention.h"
#include "spdkfac/calibrate/grid.h"
#include "spdkfac/comm/rank_values.h"
#include "spdkfac/plan/cluster_file.h"

namespace spdkfac::calibrate {
namespace {

using Clock = std::chrono::steady_clock;

CollectiveCost& cost_of(CostModel& costs, Operation operation) {
  switch (operation) {
    case Operation::kReduce:
      return costs.reduce;
    case Operation::kBroadcast:
      return costs.broadcast;
    default:
      return costs.all_reduce;
  }
}

// Where the numbers come from, field by field.
void describe(Calibration& calibration, const CalibrationOptions& options) {
  CostModel& costs = calibration.costs;
  const Machine& machine = calibration.machine;
  const bool alone = costs.world == 1;
  costs.source = fmt::format(
      "Measured by spdkfac calibrate with {} on {} ({}).",
      alone ? "one rank" : fmt::format("{} ranks", costs.world),
      machine.host_count() == 1 ? "one host" : fmt::format("{} hosts", machine.host_count()),
      machine.device);
  if (alone) costs.source += " One rank has no collectives: they cost nothing.";
  auto& provenance = costs.provenance;
  provenance["date"] = utc_stamp();
  provenance["hosts"] = std::to_string(machine.host_count());
  provenance["ranks"] = std::to_string(costs.world);
  provenance["device"] = machine.device;
  provenance["threads"] = std::to_string(machine.threads);
  provenance["versions"] = versions();
  provenance["repetitions"] = std::to_string(options.repetitions);
  provenance["all fields"] =
      "median of the repetitions, all ranks at the same time: messages by the slowest rank, "
      "computation by the mean of the ranks";
  const double largest = calibration.inverse.measured.back().size;
  if (calibration.inverse.takes_table()) {
    provenance["inverse"] = fmt::format(
        "measured up to dimension {}; beyond it assumed to grow with the cube", largest);
  } else {
    provenance["inverse"] =
        fmt::format("a cubic fitted to dimensions up to {}, at most {:.1f} % off", largest,
                    100 * calibration.inverse.cubic.quality.max_relative_error);
  }
  if (!machine.transport.empty()) provenance["transport"] = machine.transport;
}

}  // namespace

CalibrationOptions full_calibration(c10::Device device) {
  CalibrationOptions options;
  if (!device.is_cpu()) {
    options.max_dim = 8192;
    options.batch = 32;
  }
  return options;
}

CalibrationOptions quick_sizes(c10::Device device) {
  CalibrationOptions options;
  options.max_elements = std::int64_t{4} << 20;
  options.element_ratio = 8;
  // A GPU takes as long for 1024 rows as its launches do, which says nothing of larger ones.
  options.max_dim = device.is_cpu() ? 1024 : 4608;
  options.dim_ratio = 2;
  options.batch = device.is_cpu() ? 1 : 32;
  options.repetitions = 3;
  options.budget = Seconds(2.5);
  return options;
}

Calibration calibrate(Communicator& communicator, c10::Device device,
                      const CalibrationOptions& options, const CalibrationObserver& observer) {
  const auto begin = Clock::now();
  Machine machine = find_machine(communicator, device);
  Bench bench{communicator, device};
  bench.shared_cores = device.is_cpu() && machine.shares_cores();

  std::optional<CollectiveStage> collectives;
  if (communicator.size() > 1) {
    collectives.emplace(bench,
                        geometric_grid(kSmallestMessage, options.max_elements,
                                       options.element_ratio, /*multiple=*/1),
                        options.repetitions, options.budget);
  }
  const ComputeStage computation(bench,
                                 inverse_grid(kSmallestDim, options.max_dim, options.dim_ratio),
                                 options.batch, options.repetitions, options.budget);
  const int rounds = 1 + 2 * options.repetitions;  // of what is a difference, and so noisier
  Seconds estimate = computation.estimate();
  std::size_t samples = computation.samples();
  if (collectives) {
    estimate += collectives->estimate() + ContentionMeter::estimate(rounds);
    samples += collectives->samples() + ContentionMeter::samples(rounds);
  }
  if (observer.begin) observer.begin(estimate, samples);
  bench.advance = observer.advance;

  CostModel costs;
  costs.name = options.name;
  costs.world = communicator.size();
  std::vector<CollectiveFits> fits;
  RatesTogether rates;
  if (collectives) {
    for (const CollectiveTimes& times : collectives->measure()) {
      fits.push_back(fit_collective_times(times));
      cost_of(costs, times.operation) = fits.back().chosen();
    }
    ContentionMeter contention(bench, fits.front().measured.times);
    for (int round = 0; round < rounds; ++round) contention.round();
    rates = contention.rates();
  }
  const ComputeTimes times = computation.measure();
  costs.compute = times.rates;
  costs.overheads = times.overheads;
  // As the runtime's steps do both.
  costs.overheads.unpack_on_arrival = true;
  costs.task_order = TaskOrder::kFactorsBetweenPasses;
  costs.overheads.compute_rate_under_communication = rates.computation;
  costs.overheads.communication_rate_under_computation = rates.communication;

  Calibration result{.costs = std::move(costs),
                     .text = "",
                     .collectives = std::move(fits),
                     .inverse = fit_inverse_times(times.inverse),
                     .machine = std::move(machine),
                     .estimate = estimate,
                     .elapsed = Seconds(0)};
  result.costs.inverse = result.inverse.chosen();
  describe(result, options);
  // All ranks hold the same numbers; the text of one makes it certain, and has one date.
  result.text = comm::text_of_rank_zero(communicator, device, to_json(result.costs).dump(1) + "\n");
  result.costs = parse_cluster(parse_json(result.text, "calibrate"), "calibrate");
  result.elapsed = Seconds(std::chrono::duration<double>(Clock::now() - begin).count());
  return result;
}

}  // namespace spdkfac::calibrate
