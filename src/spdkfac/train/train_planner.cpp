// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/train_planner.h"

#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/data_files.h"
#include "spdkfac/base/error.h"
#include "spdkfac/calibrate/quick_calibration.h"

namespace spdkfac::train {
namespace {

std::filesystem::path cluster_file(const RankOptions& options, const std::string& otherwise) {
  if (!options.cluster_file.empty()) return options.cluster_file;
  return data_file("clusters", options.cluster.empty() ? otherwise : options.cluster,
                   ", or give a file with --cluster-file");
}

CostModel read_costs(const RankOptions& options, int world) {
  const std::filesystem::path file = cluster_file(options, "");
  const CostModel costs = read_cluster(file);
  if (costs.world != world) {
    throw ConfigError(fmt::format(
        "{}: is for {} ranks, this run has {}; calibrate with the same number, or remove {}",
        file.string(), costs.world, world,
        options.cluster_file.empty() ? "--cluster" : "--cluster-file"));
  }
  return costs;
}

Plan plan_of_file(const TrainOptions& options) {
  Plan plan = read_plan(options.ranks.plan_file);
  require_trainable(plan.options);
  if (plan.options.second_order() != options.second_order()) {
    throw ConfigError(fmt::format(
        "{}: a plan of {}, which does not fit --algorithm {}; give the algorithm of the plan",
        options.ranks.plan_file, plan.algorithm, options.algorithm));
  }
  return plan;
}

// One rank sends nothing, so it plans nothing.
void refuse_plans(const RankOptions& options) {
  for (const auto& [flag, given] : {std::pair("--plan", !options.plan_file.empty()),
                                    std::pair("--plan-out", !options.plan_out.empty()),
                                    std::pair("--cluster", !options.cluster.empty()),
                                    std::pair("--cluster-file", !options.cluster_file.empty()),
                                    std::pair("--recalibrate", options.recalibrate)}) {
    if (given) {
      throw ConfigError(fmt::format(
          "flags: {} needs several ranks; start the program with mpirun, or remove it", flag));
    }
  }
}

}  // namespace

CostModel simulated_cluster(const RankOptions& options) {
  return read_cluster(cluster_file(options, "paper-64x2080ti"));
}

CostModel costs_of_ranks(const RankOptions& options, const Ranks& ranks, at::Device device,
                         const std::function<void(const std::string&)>& say) {
  if (!options.cluster.empty() || !options.cluster_file.empty()) {
    CostModel costs = read_costs(options, ranks.size());
    say(fmt::format("costs of {}", costs.name));
    return costs;
  }
  calibrate::QuickCalibration quick = calibrate::quick_calibration(
      *ranks.communicator(), device,
      {.recalibrate = options.recalibrate, .transport = options.backend});
  if (!quick.warning.empty()) say("warning: " + quick.warning);
  say(quick.measured
          ? std::string("costs: measured now (quick calibration)")
          : fmt::format("costs: from an earlier calibration ({}; --recalibrate measures again)",
                        quick.file.string()));
  return std::move(quick.costs);
}

Distribution make_distribution(const TrainOptions& options, const Ranks& ranks, at::Device device,
                               const std::function<void(const std::string&)>& say) {
  Distribution distribution;
  const RankOptions& rank_options = options.ranks;
  if (ranks.alone()) {
    refuse_plans(rank_options);
    return distribution;
  }
  distribution.communicator = ranks.communicator();
  distribution.model_name = options.model;
  distribution.profile_steps = rank_options.profile_steps;
  if (!rank_options.plan_file.empty()) {
    distribution.plans = FollowPlan{plan_of_file(options), rank_options.plan_file};
    say(fmt::format("plan: {}", rank_options.plan_file));
    return distribution;
  }
  distribution.plans =
      PlanForCosts{costs_of_ranks(rank_options, ranks, device, say), rank_options.plan};
  return distribution;
}

}  // namespace spdkfac::train
