// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "spdkfac/cli/flags.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/plan/refresh_intervals.h"

namespace spdkfac::cli {

// The flags that `plan`, `simulate` and `advise` share: which model, which cluster, how many
// workers, which algorithm. Flags are bound to members, so an object must outlive the parsing.
class Inputs {
 public:
  // `several`: the verb takes more than one model and algorithm.
  void add_to(CLI::App& verb, bool several, const std::string& default_algorithm);

  // The flags among these that were given, for verbs that cannot use them.
  std::vector<std::string> given(const std::vector<std::string>& flags) const;
  // One model for each --model and --model-file; `all` stands for every model in the data.
  std::vector<ModelSpec> models() const;
  CostModel cluster() const;
  int world(const CostModel& cluster) const;
  // One set of options for each --algorithm (or `otherwise`), with the overrides applied. Flags
  // that none of them can follow, and `kfac` on more than one rank, are a ConfigError.
  std::vector<PlanOptions> algorithms(const std::vector<std::string>& otherwise,
                                      int largest_world) const;
  RefreshIntervals intervals() const;
  // Those that several algorithms are compared at: the intervals given, or else both usual ones.
  std::vector<RefreshIntervals> compared_intervals() const;

 private:
  PlanOptions with_overrides(const std::string& algorithm) const;

  CLI::App* verb_ = nullptr;
  std::vector<std::string> model_names_;
  std::vector<std::string> model_files_;
  std::string cluster_name_;
  std::string cluster_file_;
  std::optional<int> world_;
  std::optional<std::int64_t> batch_;
  std::vector<std::string> algorithm_names_;
  PlanFlags plan_flags_;
  std::optional<std::int64_t> factor_interval_;
  std::optional<std::int64_t> inverse_interval_;
  std::string interval_ = "fixed";
  std::string solver_ = "inverse";
  std::optional<std::int64_t> over_steps_;
  bool spread_refreshes_ = false;
};

}  // namespace spdkfac::cli
