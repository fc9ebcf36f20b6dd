// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/inputs.h"

#include <algorithm>

#include <fmt/format.h>

#include "spdkfac/base/data_files.h"
#include "spdkfac/base/error.h"
#include "spdkfac/sim/predict.h"

namespace spdkfac::cli {

void Inputs::add_to(CLI::App& verb, bool several, const std::string& default_algorithm) {
  verb_ = &verb;
  const std::string inputs = "Inputs";
  auto* models = verb.add_option("--model", model_names_,
                                 several ? "Bundled model, or 'all'; repeatable" : "Bundled model")
                     ->type_name("NAME")
                     ->group(inputs);
  auto* model_files =
      verb.add_option("--model-file", model_files_,
                      several ? "Model file instead; repeatable" : "Model file instead")
          ->type_name("FILE")
          ->group(inputs);
  for (auto* option : {models, model_files}) option->expected(1)->take_all();
  auto* name = verb.add_option("--cluster", cluster_name_, "Bundled cluster")
                   ->type_name("NAME")
                   ->group(inputs);
  verb.add_option("--cluster-file", cluster_file_, "Cluster file instead")
      ->type_name("FILE")
      ->group(inputs)
      ->excludes(name);
  verb.add_option("--world", world_, "Number of ranks (default: the cluster's)")
      ->check(count(1, kMaxWorld))
      ->type_name("P")
      ->group(inputs);
  verb.add_option("--batch", batch_, "Examples per rank (default: the model's)")
      ->check(count(1, 1'000'000'000))
      ->type_name("N")
      ->group(inputs);

  const std::string variants =
      "Algorithm and variants (each flag overrides one option of the algorithm)";
  verb.add_option("--algorithm", algorithm_names_,
                  fmt::format("A name from 'spdkfac algorithms', or auto{} (default: {})",
                              several ? "; repeatable" : "", default_algorithm))
      ->type_name("NAME")
      ->group(variants)
      ->expected(1)
      ->take_all();
  plan_flags_.add_to(verb, variants);
  verb.add_option("--factor-interval", factor_interval_, "Steps between new factors (default 1)")
      ->check(count(1, kMaxInterval))
      ->type_name("N")
      ->group(variants);
  verb.add_option("--inverse-interval", inverse_interval_,
                  "Steps between new inverses (default: the factor interval)")
      ->check(count(1, kMaxInterval))
      ->type_name("N")
      ->group(variants);
  verb.add_option(
          "--interval", interval_,
          "fixed (default); auto or adaptive: these grow up to the intervals given (10, 100)")
      ->check(one_of(refresh_names()))
      ->type_name("WORD")
      ->group(variants);
  verb.add_option("--solver", solver_, "What K-FAC makes of the factors (default inverse)")
      ->check(one_of(solver_names()))
      ->type_name("WORD")
      ->group(variants);
  verb.add_option("--over-steps", over_steps_,
                  "First steps that growing intervals are averaged over (default 1000)")
      ->check(count(1, kMaxInterval))
      ->type_name("N")
      ->group(variants);
  verb.add_flag("--spread-refreshes", spread_refreshes_,
                "Spread a refresh of the inverses over the steps that renew factors")
      ->group(variants);
}

std::vector<std::string> Inputs::given(const std::vector<std::string>& flags) const {
  std::vector<std::string> result;
  for (const std::string& flag : flags) {
    if (verb_->count(flag) > 0) result.push_back(flag);
  }
  return result;
}

std::vector<ModelSpec> Inputs::models() const {
  std::vector<ModelSpec> result;
  for (const std::string& name : model_names_) {
    if (name == "all") {
      for (const std::string& known : data_names("models")) {
        result.push_back(read_model(data_file("models", known)));
      }
    } else {
      result.push_back(read_model(data_file("models", name, ", or give a file with --model-file")));
    }
  }
  for (const std::string& file : model_files_) result.push_back(read_model(file));
  if (result.empty()) {
    throw ConfigError(
        "flags: no model is given; use --model NAME or --model-file FILE "
        "('spdkfac models' lists names)");
  }
  if (batch_) {
    for (ModelSpec& model : result) model.batch = *batch_;
  }
  return result;
}

CostModel Inputs::cluster() const {
  if (!cluster_file_.empty()) return read_cluster(cluster_file_);
  if (cluster_name_.empty()) {
    throw ConfigError(
        "flags: no cluster is given; use --cluster NAME or --cluster-file FILE "
        "('spdkfac clusters' lists names)");
  }
  return read_cluster(data_file("clusters", cluster_name_, ", or give a file with --cluster-file"));
}

int Inputs::world(const CostModel& cluster) const { return world_.value_or(cluster.world); }

std::vector<PlanOptions> Inputs::algorithms(const std::vector<std::string>& otherwise,
                                            int largest_world) const {
  std::vector<PlanOptions> result;
  for (const std::string& name : algorithm_names_.empty() ? otherwise : algorithm_names_) {
    if (name == "kfac" && largest_world > 1) {
      throw ConfigError(fmt::format(
          "flags: algorithm=kfac is d-kfac on one rank (got {} ranks); add --world 1, or choose "
          "d-kfac",
          largest_world));
    }
    result.push_back(with_overrides(name));
  }
  const auto of_factors =
      given({"--factor-interval", "--inverse-interval", "--spread-refreshes", "--solver"});
  const auto kfac = [](const PlanOptions& options) { return options.second_order(); };
  if (!of_factors.empty() && std::none_of(result.begin(), result.end(), kfac)) {
    throw ConfigError(
        fmt::format("flags: {} makes no sense with algorithm={}, which has no factors; remove it, "
                    "or choose a K-FAC algorithm",
                    of_factors.front(), result.front().algorithm));
  }
  return result;
}

PlanOptions Inputs::with_overrides(const std::string& algorithm) const {
  PlanOptions options = plan_flags_.options(algorithm);
  // Others are compared as they are.
  if (options.second_order() && options.method == Method::kKfac) {
    options.solver = value_of<Solver>(solver_names(), solver_);
  }
  validate(options);
  return options;
}

RefreshIntervals Inputs::intervals() const {
  RefreshIntervals intervals;
  const bool growing = interval_ != "fixed";
  if (over_steps_ && !growing) {
    throw ConfigError(
        "flags: --over-steps is for growing intervals; add --interval auto, or remove it");
  }
  intervals.factors = factor_interval_.value_or(growing ? kMostOfGrowing.factors : 1);
  // Without its own interval, inverses are refreshed with the factors.
  intervals.inverses = inverse_interval_.value_or(
      growing && !factor_interval_ ? kMostOfGrowing.inverses : intervals.factors);
  if (growing) intervals.growing_over = over_steps_.value_or(kForecastSteps);
  if (spread_refreshes_ && interval_ == "adaptive") {
    throw ConfigError(
        "flags: --spread-refreshes makes no sense with --interval adaptive, where each layer has "
        "steps of its own; choose auto or fixed, or remove it");
  }
  intervals.spread = spread_refreshes_;
  validate(intervals);
  return intervals;
}

std::vector<RefreshIntervals> Inputs::compared_intervals() const {
  const bool any =
      !given({"--factor-interval", "--inverse-interval", "--interval", "--over-steps"}).empty();
  if (any) return {intervals()};
  std::vector<RefreshIntervals> usual = spdkfac::compared_intervals();
  for (RefreshIntervals& one : usual) one.spread = spread_refreshes_;
  return usual;
}

}  // namespace spdkfac::cli
