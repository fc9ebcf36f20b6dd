// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/hash.h"
#include "spdkfac/plan/plan_file.h"

namespace spdkfac {

MemberSize member_size(const LayerSpec& layer, TensorKind kind) {
  switch (kind) {
    case TensorKind::kFactorA:
      return {layer.shape(FactorSide::kA).packed(), 1};
    case TensorKind::kFactorG:
      return {layer.shape(FactorSide::kG).packed(), 1};
    case TensorKind::kGradient:
      return {layer.gradient_elements(), static_cast<std::int64_t>(layer.gradients.size())};
    case TensorKind::kDiagonalMeans:
      return {2 * layer.groups, 1};
  }
  SPDKFAC_CHECK(false, "unknown TensorKind");
}

Plan with_ranks_swapped(Plan plan, int one, int other) {
  const auto swap = [=](std::optional<int>& rank) {
    if (rank == one) {
      rank = other;
    } else if (rank == other) {
      rank = one;
    }
  };
  for (Message& message : plan.messages) swap(message.route.root);
  for (FactorPlacement& factor : plan.placements) swap(factor.owner);
  return plan;
}

std::string describe(const Message& message) {
  const Member& first = message.members.front();
  const bool mixed = std::any_of(message.members.begin(), message.members.end(),
                                 [&](const Member& m) { return m.kind != first.kind; });
  return fmt::format("{} {} {}..{}",
                     message.route.op == CollectiveOp::kReduce ? "reduce" : "all_reduce",
                     mixed ? "mixed" : name_of(tensor_kind_names(), first.kind), first.layer,
                     message.members.back().layer);
}

bool sends_factors(const Plan& plan) {
  return plan.options.second_order() && plan.step != StepKind::kGradients &&
         plan.options.factor_reduce != FactorReduce::kLocal;
}

namespace {

// V of layers whose gradients every rank has: of each layer from its gradient workers to their
// rows, or of all at once.
std::vector<ResultBroadcast> grid_broadcasts(const Plan& plan, const ModelSpec& model,
                                             const WorkerGrid& grid) {
  std::vector<ResultBroadcast> steps;
  const bool gather = plan.options.exchange == Exchange::kGather;
  std::vector<std::optional<std::size_t>> first(model.layers.size());
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    const FactorPlacement& factor = plan.placements[i];
    if (!factor.owner) continue;
    const auto layer = static_cast<std::size_t>(factor.layer);
    if (!first[layer]) {
      first[layer] = i;
      continue;
    }
    if (steps.empty() || !gather) {
      steps.push_back({.first = *first[layer],
                       .root = *factor.owner,
                       .gradients = true,
                       .tensors = 0,
                       .ranks = grid.columns,
                       .copies = grid.workers});
    }
    steps.back().last = i;
    steps.back().elements += model.layers[layer].own_elements();
    steps.back().tensors += static_cast<std::int64_t>(model.layers[layer].own_tensors());
  }
  return steps;
}

}  // namespace

std::vector<ResultBroadcast> result_broadcasts(const Plan& plan, const ModelSpec& model) {
  const WorkerGrid grid = worker_grid(plan.options, plan.world);
  std::vector<ResultBroadcast> steps;
  std::vector<bool> half_done(model.layers.size(), false);
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    const FactorPlacement& factor = plan.placements[i];
    if (!factor.owner) continue;
    if (!factor.sends_gradient) {
      if (plan.step == StepKind::kFull && grid.workers > 1 &&
          plan.options.method != Method::kMuon) {
        steps.push_back({.first = i,
                         .last = i,
                         .root = *factor.owner,
                         .elements = factor.result(plan.options.solver),
                         .ranks = grid.workers});
      }
      continue;
    }
    const auto layer = static_cast<std::size_t>(factor.layer);
    half_done[layer] = !half_done[layer];
    const bool joins = !steps.empty() && steps.back().gradients && steps.back().last + 1 == i &&
                       steps.back().root == *factor.owner;
    if (!joins) {
      steps.push_back({.first = i,
                       .last = i,
                       .root = *factor.owner,
                       .gradients = true,
                       .tensors = 0,
                       .ranks = plan.world});
    }
    steps.back().last = i;
    if (!half_done[layer]) {  // this was its second factor
      const MemberSize size = member_size(model.layers[layer], TensorKind::kGradient);
      steps.back().elements += size.elements + kInnerElements;
      steps.back().tensors += size.tensors;
    }
  }
  if (grid.columns > 1) {
    for (ResultBroadcast& one : grid_broadcasts(plan, model, grid)) steps.push_back(one);
  }
  return steps;
}

std::vector<bool> layers_sending_gradient(const Plan& plan, std::size_t layers) {
  std::vector<bool> sends(layers, false);
  for (const FactorPlacement& factor : plan.placements) {
    if (factor.sends_gradient) sends[static_cast<std::size_t>(factor.layer)] = true;
  }
  return sends;
}

Plan without_gradients(Plan plan, const ModelSpec& model) {
  std::vector<Message> messages;
  for (Message& message : plan.messages) {
    const auto is_gradient = [](const Member& member) {
      return member.kind == TensorKind::kGradient;
    };
    for (const Member& member : message.members) {
      if (!is_gradient(member)) continue;
      const LayerSpec& layer = model.layers[static_cast<std::size_t>(member.layer)];
      message.elements -= member_size(layer, member.kind).elements;
    }
    std::erase_if(message.members, is_gradient);
    if (!message.members.empty()) messages.push_back(std::move(message));
  }
  plan.messages = std::move(messages);
  return plan;
}

std::string Plan::digest() const {
  Json document = to_json(*this);
  document.erase("predicted");
  return fmt::format("{:016x}", fnv1a(document.dump()));
}

}  // namespace spdkfac
