// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/rank_agreement.h"

#include <algorithm>
#include <span>
#include <string>
#include <variant>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/comm/agreement.h"
#include "spdkfac/plan/plan_options_file.h"

namespace spdkfac::runtime {
namespace {

struct SourceText {
  std::string operator()(const MeasureHere& source) const {
    return fmt::format("{} for costs measured {} {}", source.options.algorithm,
                       source.recalibrate ? "again" : "here", to_json(source.options).dump());
  }
  std::string operator()(const PlanForCosts& source) const {
    return fmt::format("{} for cluster {} {}", source.options.algorithm, source.costs.name,
                       to_json(source.options).dump());
  }
  std::string operator()(const FollowPlan& source) const {
    return fmt::format("plan {}", source.plan.digest());
  }
  std::string operator()(const CustomPlanner& source) const {
    return source.second_order ? "a planner" : "a planner without factors";
  }
};

std::string text_of(const std::vector<TrackedLayer>& layers) {
  std::string text;
  for (const TrackedLayer& layer : layers) {
    text += fmt::format("{}{} [{}]{}{}{}", text.empty() ? "" : ", ", layer.name,
                        fmt::join(layer.weight.sizes(), "x"), layer.bias.defined() ? " bias" : "",
                        layer.frozen_weight ? " alone" : "", layer.partial ? " partial" : "");
  }
  return text;
}

std::string text_of(const std::vector<at::Tensor>& parameters) {
  std::int64_t elements = 0;
  for (const at::Tensor& parameter : parameters) elements += parameter.numel();
  return fmt::format("{} with {} elements", parameters.size(), elements);
}

// A digest is a line of name=value.
std::vector<comm::Fact> facts_of(const std::string& digest) {
  std::vector<comm::Fact> facts;
  for (std::size_t begin = 0; begin < digest.size();) {
    const std::size_t end = std::min(digest.find(' ', begin), digest.size());
    const std::string one = digest.substr(begin, end - begin);
    const std::size_t equals = std::min(one.find('='), one.size());
    facts.push_back({one.substr(0, equals), one.substr(std::min(equals + 1, one.size()))});
    begin = end + 1;
  }
  return facts;
}

}  // namespace

void require_same_start(const Distribution& distribution, const KfacOptions& options,
                        const std::vector<TrackedLayer>& layers,
                        const std::vector<at::Tensor>& parameters) {
  KfacOptions usual = options;  // the digest names these two only where they are not as usual
  usual.spread_refreshes = false;
  usual.solver = Solver::kInverse;
  std::vector<comm::Fact> facts = facts_of(digest(usual));
  facts.push_back({"spread_refreshes", fmt::to_string(options.spread_refreshes)});
  facts.push_back({"solver", solver_names()[static_cast<std::size_t>(options.solver)]});
  facts.push_back({"precision", precision_names()[static_cast<std::size_t>(options.precision)]});
  facts.push_back({"examples", options.examples ? "set" : "of the first input"});
  facts.push_back({"profile_steps", fmt::to_string(distribution.profile_steps)});
  facts.push_back({"send_gradients", fmt::to_string(distribution.send_gradients)});
  facts.push_back({"messages_after_passes", fmt::to_string(distribution.messages_after_passes)});
  facts.push_back({"plans", std::visit(SourceText{}, distribution.plans)});
  facts.push_back({"the covered layers", text_of(layers)});
  facts.push_back({"the trained parameters", text_of(parameters)});
  comm::require_same(*distribution.communicator, "kfac", facts);
}

void require_same_steps(Communicator& communicator, std::int64_t steps,
                        const std::exception_ptr& failure) {
  comm::require_all(communicator, "kfac state", failure);
  const comm::Fact loaded{"loaded steps", fmt::to_string(steps)};
  comm::require_same(communicator, "kfac state", std::span(&loaded, 1));
}

}  // namespace spdkfac::runtime
