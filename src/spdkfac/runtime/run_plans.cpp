// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/run_plans.h"

#include <utility>

#include <fmt/format.h>
#include <spdlog/logger.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/agreement.h"
#include "spdkfac/plan/model_file.h"
#include "spdkfac/runtime/planners.h"

namespace spdkfac::runtime {
namespace {

// Neither interval needs to divide the other on one rank.
std::vector<StepKind> kinds_of(const KfacOptions& options, bool second_order) {
  std::vector<StepKind> kinds = {StepKind::kFull};
  if (!second_order) return kinds;
  if (options.factor_interval % options.inverse_interval != 0) kinds.push_back(StepKind::kFactors);
  if (options.factor_interval > 1 && options.inverse_interval > 1) {
    kinds.push_back(StepKind::kGradients);
  }
  return kinds;
}

ModelSpec model_of(const std::string& name, const std::vector<TrackedLayer>& layers,
                   const CallLog& calls, const std::vector<at::Tensor>& parameters) {
  if (calls.order().empty()) {
    throw ConfigError(
        "kfac: step() was called before any forward pass with gradients was seen; run it on the "
        "thread that created the Preconditioner, in training mode");
  }
  ModelSpec model;
  model.name = name;
  model.batch = calls.uses(calls.order().front()).front().examples;
  model.layers = specs_of_calls(layers, calls, parameters_by_layer(layers, parameters), "kfac");
  for (const LayerSpec& layer : model.layers) model.parameters += layer.gradient_elements();
  std::int64_t all = 0;
  for (const at::Tensor& parameter : parameters) all += parameter.numel();
  if (model.parameters != all) {
    throw ConfigError(
        fmt::format("kfac: only {} of {} Conv2d and Linear layers were called in the first step; "
                    "on several ranks, call all of them, because all gradients are sent",
                    calls.order().size(), layers.size()));
  }
  return model;
}

}  // namespace

Plan plan_without_messages(const std::string& model, const std::vector<TrackedLayer>& layers,
                           const CallLog& calls, bool second_order,
                           const RefreshIntervals& intervals, StepKind step) {
  Plan plan;
  plan.options = preset(second_order ? "kfac" : "sgd");
  plan.algorithm = plan.options.algorithm;
  plan.model = model;
  plan.step = step;
  if (!second_order) return plan;
  plan.intervals = intervals;
  for (std::size_t i = 0; i < calls.order().size(); ++i) {
    const TrackedLayer& layer = layers[calls.order()[i]];
    const std::int64_t groups = calls.uses(calls.order()[i]).front().groups();
    FactorPlacement a;
    a.layer = static_cast<int>(i);
    a.dim = layer.weight[0].numel() + (layer.bias.defined() ? 1 : 0);
    FactorPlacement g = a;
    g.side = FactorSide::kG;
    g.dim = layer.weight.size(0) / groups;
    plan.placements.push_back(a);
    plan.placements.push_back(g);
  }
  return plan;
}

RunPlans::RunPlans(const Distribution& distribution, const KfacOptions& options, c10::Device device,
                   std::shared_ptr<spdlog::logger> logger)
    : distribution_(distribution),
      second_order_(second_order(distribution.plans)),
      kinds_(kinds_of(options, second_order_)),
      intervals_(options.intervals()),
      logger_(std::move(logger)) {
  Communicator& ranks = *distribution.communicator;
  if (ranks.size() > 1) planner_ = make_planner(distribution.plans, ranks, device, *logger_);
}

void RunPlans::make_first(const std::vector<TrackedLayer>& layers, const CallLog& calls,
                          const std::vector<at::Tensor>& parameters) {
  if (distribution_.communicator->size() == 1) {
    for (const StepKind kind : kinds_) {
      plans_.insert_or_assign(kind, plan_without_messages(distribution_.model_name, layers, calls,
                                                          second_order_, intervals_, kind));
    }
    return;
  }
  model_ = model_of(distribution_.model_name, layers, calls, parameters);
  comm::require_same(*distribution_.communicator, "the model and the batch of a rank",
                     to_json(model_).dump());
  make();
}

void RunPlans::make_again(const std::vector<LayerTimes>& times) {
  for (std::size_t layer = 0; layer < times.size(); ++layer) {
    model_.layers[layer].times = times[layer];
  }
  make();
}

void RunPlans::make() {
  plans_.clear();
  for (const StepKind kind : kinds_) {
    Plan plan = planner_(model_, intervals_, kind);
    check(plan);
    plans_.emplace(kind, std::move(plan));
  }
  const Plan& full = plans_.at(StepKind::kFull);
  logger_->info("kfac: plan {} ({}) for {} ranks, {} messages in a full step", full.digest(),
                full.algorithm, full.world, full.messages.size());
}

void RunPlans::check(const Plan& plan) const {
  const int world = distribution_.communicator->size();
  if (plan.world != world) {
    throw ConfigError(
        fmt::format("kfac: the plan is for {} ranks, but the communicator has {}; make a plan for "
                    "this number of ranks",
                    plan.world, world));
  }
  if (plan.options.second_order() != second_order_) {
    throw ConfigError(fmt::format("kfac: the plan's algorithm {} {} factors, but this run {}",
                                  plan.algorithm, plan.options.second_order() ? "has" : "has no",
                                  second_order_ ? "needs them" : "does not"));
  }
  validate_against(plan, model_, "kfac: plan");
  comm::require_same(*distribution_.communicator, "the plan", plan.digest());
}

std::map<StepKind, Plan> RunPlans::followed() const {
  std::map<StepKind, Plan> plans = plans_;
  if (!distribution_.send_gradients) {
    for (auto& [kind, plan] : plans) plan = without_gradients(std::move(plan), model_);
  }
  return plans;
}

std::optional<Plan> RunPlans::plan(StepKind kind) const {
  const auto found = plans_.find(kind);
  return found == plans_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace spdkfac::runtime
