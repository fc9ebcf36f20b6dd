// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/run_plans.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/agreement.h"
#include "spdkfac/comm/rank_values.h"
#include "spdkfac/plan/factor_placement.h"
#include "spdkfac/plan/model_file.h"
#include "spdkfac/runtime/planners.h"

namespace spdkfac::runtime {
namespace {

// Neither interval needs to divide the other on one rank.
std::vector<StepKind> kinds_of(const KfacOptions& options, bool second_order) {
  std::vector<StepKind> kinds = {StepKind::kFull};
  if (!second_order) return kinds;
  const bool fixed = options.interval == Refresh::kFixed;
  if (fixed ? options.factor_interval % options.inverse_interval != 0
            : options.inverse_interval > 1) {
    kinds.push_back(StepKind::kFactors);
  }
  if (options.factor_interval > 1 && (!fixed || options.inverse_interval > 1)) {
    kinds.push_back(StepKind::kGradients);
  }
  return kinds;
}

std::string not_called(const std::vector<TrackedLayer>& layers, const CallLog& calls) {
  std::vector<std::string> names;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (calls.uses(layer).empty()) names.push_back(layers[layer].name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

ModelSpec model_of(const std::string& name, const std::vector<TrackedLayer>& layers,
                   const CallLog& calls, const std::vector<at::Tensor>& parameters,
                   const FactorLimit& limit) {
  if (calls.order().empty()) {
    throw ConfigError(
        "kfac: step() was called before any forward pass with gradients was seen; run it on the "
        "thread that created the Preconditioner, in training mode");
  }
  ModelSpec model;
  model.name = name;
  model.batch = calls.uses(calls.order().front()).front().examples;
  model.layers = specs_of_calls(layers, calls, parameters_by_layer(layers, parameters), limit);
  for (const LayerSpec& layer : model.layers) model.parameters += layer.gradient_elements();
  std::int64_t all = 0;
  for (const at::Tensor& parameter : parameters) all += parameter.numel();
  if (model.parameters != all) {
    throw ConfigError(
        fmt::format("kfac: only {} of {} covered layers were called in the first step, "
                    "not {}; on several ranks, call all of them, because all gradients are sent",
                    calls.order().size(), layers.size(), not_called(layers, calls)));
  }
  return model;
}

// What a rank tells the others about a layer.
struct LayerReport {
  static constexpr std::size_t kValues = 4;
  std::int64_t place = -1;  // in the order of calls; -1: not called
  std::int64_t examples = 0;
  std::int64_t positions = 0;
  bool gradient = false;
};

std::vector<double> values_of(const std::vector<TrackedLayer>& layers, const CallLog& calls) {
  std::vector<LayerReport> reports(layers.size());
  for (std::size_t place = 0; place < calls.order().size(); ++place) {
    LayerReport& report = reports[calls.order()[place]];
    report.place = static_cast<std::int64_t>(place);
    for (const kfac::LayerUse& use : calls.uses(calls.order()[place])) {
      report.examples = use.examples;
      report.positions += use.positions;
    }
  }
  std::vector<double> values;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const LayerReport& report = reports[layer];
    for (const std::int64_t value : {report.place, report.examples, report.positions}) {
      values.push_back(static_cast<double>(value));
    }
    values.push_back(layers[layer].has_gradient() ? 1 : 0);
  }
  return values;
}

std::vector<LayerReport> reports_of(const std::vector<double>& values) {
  std::vector<LayerReport> reports;
  for (std::size_t at = 0; at < values.size(); at += LayerReport::kValues) {
    const auto value = [&](std::size_t i) { return static_cast<std::int64_t>(values[at + i]); };
    reports.push_back({value(0), value(1), value(2), value(3) != 0});
  }
  return reports;
}

// Puts what `own` has and `order` has not behind its predecessor.
void merge_order(const std::vector<std::size_t>& own, std::vector<std::size_t>& order) {
  auto behind = order.begin();
  for (const std::size_t layer : own) {
    auto found = std::find(order.begin(), order.end(), layer);
    if (found == order.end()) found = order.insert(behind, layer);
    behind = found + 1;
  }
}

std::vector<std::size_t> order_of(const std::vector<LayerReport>& reports) {
  std::vector<std::size_t> order;
  for (std::size_t layer = 0; layer < reports.size(); ++layer) {
    if (reports[layer].place >= 0) order.push_back(layer);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return reports[one].place < reports[other].place;
  });
  return order;
}

// Layers that no rank has called so far, but might. Those with a gradient are called where nobody
// sees it, and their gradients would never be preconditioned.
void require_no_gradients(const std::vector<std::vector<LayerReport>>& ranks,
                          const std::vector<std::size_t>& unseen,
                          const std::vector<TrackedLayer>& layers) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names;
  for (const std::size_t index : unseen) {
    const bool gradient = std::any_of(ranks.begin(), ranks.end(),
                                      [&](const auto& reports) { return reports[index].gradient; });
    if (gradient) names.push_back(layers[index].name);
  }
  if (names.empty()) return;
  const std::size_t more = names.size() - std::min(names.size(), kShown);
  names.resize(names.size() - more);
  throw ConfigError(
      fmt::format("kfac: no call was seen in the first step of layers that have a gradient: {}{}; "
                  "call them on the thread that made the Preconditioner and in training mode, or "
                  "leave them out (skip_layers=)",
                  fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
}

// The calls of all ranks as those of one: each layer once, with the most work that a rank has.
CallLog joined_calls(Communicator& communicator, c10::Device device,
                     const std::vector<TrackedLayer>& layers, const CallLog& own) {
  if (communicator.size() == 1) return own;
  std::string names;
  for (const TrackedLayer& layer : layers) names += layer.name + "; ";
  comm::require_same(communicator, "the covered layers", names);
  std::vector<std::vector<LayerReport>> ranks;
  for (const std::vector<double>& values :
       comm::numbers_of_ranks(communicator, device, values_of(layers, own))) {
    ranks.push_back(reports_of(values));
  }
  std::vector<std::size_t> order;
  for (const std::vector<LayerReport>& reports : ranks) merge_order(order_of(reports), order);
  if (order.empty()) return own;  // its error follows
  std::vector<std::size_t> unseen;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (std::find(order.begin(), order.end(), layer) == order.end()) unseen.push_back(layer);
  }
  require_no_gradients(ranks, unseen, layers);
  order.insert(order.end(), unseen.begin(), unseen.end());
  CallLog joined(layers.size());
  for (const std::size_t layer : order) {
    kfac::LayerUse use{.conv = std::nullopt, .bias = false, .examples = 1, .positions = 1};
    for (const std::vector<LayerReport>& reports : ranks) {
      use.examples = std::max(use.examples, reports[layer].examples);
      use.positions = std::max(use.positions, reports[layer].positions);
    }
    joined.add(layer, use);
  }
  return joined;
}

}  // namespace

Plan plan_without_messages(const std::string& model, const std::vector<TrackedLayer>& layers,
                           const CallLog& calls, bool second_order,
                           const RefreshIntervals& intervals, StepKind step,
                           const FactorLimit& limit) {
  Plan plan;
  plan.options = preset(second_order ? "kfac" : "sgd");
  plan.algorithm = plan.options.algorithm;
  plan.model = model;
  plan.step = step;
  if (!second_order) return plan;
  plan.intervals = intervals;
  for (std::size_t i = 0; i < calls.order().size(); ++i) {
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      const FactorShape shape = factor_shape(layers[calls.order()[i]], side, limit);
      plan.placements.push_back(plan::unowned(static_cast<int>(i), shape, side));
    }
  }
  return plan;
}

RunPlans::RunPlans(const Distribution& distribution, const KfacOptions& options, c10::Device device,
                   std::shared_ptr<Logger> logger)
    : distribution_(distribution),
      device_(device),
      second_order_(second_order(distribution.plans)),
      kinds_(kinds_of(options, second_order_)),
      intervals_(options.intervals()),
      limit_(options.factor_limit()),
      solver_(options.solver),
      logger_(std::move(logger)) {
  Communicator& ranks = *distribution.communicator;
  if (ranks.size() > 1)
    planner_ = make_planner(distribution.plans, solver_, ranks, device, *logger_);
}

CallLog RunPlans::make_first(const std::vector<TrackedLayer>& layers, const CallLog& own,
                             const std::vector<at::Tensor>& parameters) {
  const CallLog calls = joined_calls(*distribution_.communicator, device_, layers, own);
  if (distribution_.communicator->size() == 1) {
    for (const StepKind kind : kinds_) {
      Plan plan = plan_without_messages(distribution_.model_name, layers, calls, second_order_,
                                        intervals_, kind, limit_);
      if (second_order_) plan.options.solver = solver_;
      plans_.insert_or_assign(kind, std::move(plan));
    }
    return calls;
  }
  model_ = model_of(distribution_.model_name, layers, calls, parameters, limit_);
  comm::require_same(*distribution_.communicator, "the model of a rank", to_json(model_).dump());
  make();
  return calls;
}

void RunPlans::make_again(const std::vector<LayerTimes>& times) {
  for (std::size_t layer = 0; layer < times.size(); ++layer) {
    model_.layers[layer].times = times[layer];
  }
  make();
}

void RunPlans::set_intervals(const KfacOptions& options) {
  // The kind of the step under way stays.
  for (const StepKind kind : kinds_of(options, second_order_)) {
    if (std::find(kinds_.begin(), kinds_.end(), kind) == kinds_.end()) kinds_.push_back(kind);
  }
  intervals_ = options.intervals();
}

void RunPlans::make_for_intervals(const std::vector<TrackedLayer>& layers, const CallLog& calls,
                                  const std::vector<at::Tensor>& parameters) {
  if (distribution_.communicator->size() > 1) return make();
  plans_.clear();
  make_first(layers, calls, parameters);
}

void RunPlans::make() {
  plans_.clear();
  for (const StepKind kind : kinds_) {
    Plan plan = planner_(model_, intervals_, kind);
    check(plan);
    plans_.emplace(kind, std::move(plan));
  }
  const Plan& full = plans_.at(StepKind::kFull);
  logger_->info(fmt::format("kfac: plan {} ({}) for {} ranks, {} messages in a full step",
                            full.digest(), full.algorithm, full.world, full.messages.size()));
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
  require_trainable(plan.options);
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
