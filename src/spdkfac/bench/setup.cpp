// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/setup.h"

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/bench/emulated_rank.h"
#include "spdkfac/comm/emulated_link.h"
#include "spdkfac/comm/mirrored_peers.h"
#include "spdkfac/train/train_planner.h"

namespace spdkfac::bench {
namespace {

Setup real_setup(const train::Ranks& ranks, at::Device device, const train::RankOptions& options,
                 report::RecordHead& head) {
  head.mode = report::RecordMode::kMeasured;
  const CostModel costs = train::costs_of_ranks(options, ranks, device, [](const auto&) {});
  head.cluster = costs.name;
  return {ranks, device, costs, options.profile_steps, [&ranks] { return ranks.communicator(); }};
}

// The network of a cluster with this machine's computation.
CostModel emulated_costs(const train::RankOptions& options, const train::Ranks& ranks,
                         at::Device device, int world) {
  const CostModel network = train::simulated_cluster(options).for_world(world);
  train::RankOptions measured;  // without a cluster
  measured.recalibrate = options.recalibrate;
  CostModel costs = train::costs_of_ranks(measured, ranks, device, [](const auto&) {});
  costs.name = fmt::format("network of {}, computation of this machine", network.name);
  costs.world = world;
  costs.all_reduce = network.all_reduce;
  costs.reduce = network.reduce;
  costs.broadcast = network.broadcast;
  return costs;
}

Setup emulated_setup(const train::Ranks& ranks, at::Device device,
                     const MeasuredBenchOptions& options, report::RecordHead& head) {
  const int world = options.emulated_world;
  const CostModel costs = emulated_costs(options.ranks, ranks, device, world);
  head.mode = report::RecordMode::kEmulated;
  head.cluster = costs.name;
  head.note = fmt::format(
      "Emulated: one process does the work of one of {} ranks, for each plan the one that computes "
      "longest. The other ranks are assumed to hold the same factors and to make the same "
      "progress; messages take the time that the cluster's cost model gives.",
      world);
  return {ranks, device, costs, options.ranks.profile_steps, [costs, world, device] {
            return make_emulated_link(std::make_shared<comm::MirroredPeers>(/*rank=*/0, world),
                                      link_of(costs), device);
          }};
}

}  // namespace

Setup make_setup(const train::Ranks& ranks, at::Device device, const MeasuredBenchOptions& options,
                 report::RecordHead& head) {
  const bool emulated = options.emulated_world > 0;
  if (ranks.alone() && !emulated) {
    throw ConfigError(
        fmt::format("bench {}: needs several ranks; start the program with mpirun -n P, forecast "
                    "with --simulate, "
                    "or emulate one rank of many with --emulate P",
                    head.experiment));
  }
  if (!ranks.alone() && emulated) {
    throw ConfigError(fmt::format(
        "bench {}: --emulate needs a single process; start it without mpirun", head.experiment));
  }
  return emulated ? emulated_setup(ranks, device, options, head)
                  : real_setup(ranks, device, options.ranks, head);
}

}  // namespace spdkfac::bench
