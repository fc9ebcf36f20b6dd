// SPDX-License-Identifier: Apache-2.0
// Whether a plan is one for a given model.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/plan/message_planner.h"
#include "spdkfac/plan/plan.h"

namespace spdkfac {
namespace {

// Marks what has been seen of each layer, to find what is missing or there twice.
class Tally {
 public:
  Tally(std::size_t layers, std::string what) : seen_(layers, false), what_(std::move(what)) {}

  void mark(int layer, const std::string& where) {
    if (seen_[static_cast<std::size_t>(layer)]) {
      throw ConfigError(fmt::format("{}: {} of layer {} appears twice; make the plan again", where,
                                    what_, layer));
    }
    seen_[static_cast<std::size_t>(layer)] = true;
  }
  void expect_all(const std::string& where) const { expect(true, "is missing", where); }
  void expect_none(const std::string& where) const {
    expect(false, "does not belong to this step", where);
  }

 private:
  void expect(bool seen, const char* otherwise, const std::string& where) const {
    const auto found = std::find(seen_.begin(), seen_.end(), !seen);
    if (found == seen_.end()) return;
    throw ConfigError(fmt::format("{}: {} of layer {} {}; make the plan again", where, what_,
                                  found - seen_.begin(), otherwise));
  }

  std::vector<bool> seen_;
  std::string what_;
};

void check_layer(int layer, const ModelSpec& model, const std::string& where) {
  if (layer < 0 || static_cast<std::size_t>(layer) >= model.layers.size()) {
    throw ConfigError(
        fmt::format("{}: layer {} does not exist (model {} has {} layers); make the "
                    "plan for this model",
                    where, layer, model.name, model.layers.size()));
  }
}

template <class List>
void expect_none(const List& list, const char* why, const std::string& where) {
  if (list.empty()) return;
  throw ConfigError(fmt::format("{}: {} (got {}); make the plan again", where, why, list.size()));
}

void check_owner(const FactorPlacement& factor, int world, const std::string& where) {
  if (factor.owner && (*factor.owner < 0 || *factor.owner >= world)) {
    throw ConfigError(fmt::format("{}: owner {} does not exist (world={}); use 0 to {}", where,
                                  *factor.owner, world, world - 1));
  }
  if (factor.sends_gradient && !factor.owner) {
    throw ConfigError(
        fmt::format("{}: layer {} exchanges its gradient without an owner; make the plan again",
                    where, factor.layer));
  }
}

// Where a layer's gradient workers or its owner have both factors.
void check_owners_of_layers(const Plan& plan, const ModelSpec& model, const std::string& where) {
  const PlanOptions& options = plan.options;
  const bool local = options.factor_reduce == FactorReduce::kLocal;
  const bool all_reduced =
      options.gradient_workers.has_value() || options.exchange == Exchange::kGather;
  if (!all_reduced && !local) return;
  std::vector<std::optional<std::optional<int>>> known(model.layers.size());
  for (const FactorPlacement& factor : plan.placements) {
    auto& owner = known[static_cast<std::size_t>(factor.layer)];
    if (owner && *owner != factor.owner) {
      throw ConfigError(fmt::format(
          "{}: factors: those of layer {} have different owners, but one rank needs both; make the "
          "plan again",
          where, factor.layer));
    }
    owner = factor.owner;
    if (all_reduced && factor.sends_gradient) {
      throw ConfigError(fmt::format(
          "{}: factors: layer {} exchanges its gradient, but with these options gradients are "
          "all-reduced; make the plan again",
          where, factor.layer));
    }
    if (local && options.method == Method::kKfac && plan.world > 1 && !factor.owner) {
      throw ConfigError(
          fmt::format("{}: factors: layer {} has no owner, but its factors are local to one; make "
                      "the plan again",
                      where, factor.layer));
    }
  }
}

void validate_factors(const Plan& plan, const ModelSpec& model, const std::string& where) {
  Tally a(model.layers.size(), "factor A");
  Tally g(model.layers.size(), "factor G");
  std::vector<std::optional<int>> sender(model.layers.size());
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    const FactorPlacement& factor = plan.placements[i];
    const std::string place = fmt::format("{}: factors[{}]", where, i);
    check_layer(factor.layer, model, place);
    const LayerSpec& layer = model.layers[static_cast<std::size_t>(factor.layer)];
    const bool is_a = factor.side == FactorSide::kA;
    (is_a ? a : g).mark(factor.layer, place);
    const FactorShape expected = layer.shape(factor.side);
    if (factor.dim != expected.dim()) {
      throw ConfigError(
          fmt::format("{}: dimension {} is not that of layer {} ({}); make the plan "
                      "for this model",
                      place, factor.dim, layer.name, expected.dim()));
    }
    if (factor.blocks != expected.matrices()) {
      throw ConfigError(
          fmt::format("{}: {} blocks are not those of layer {} ({}); make the plan for this model",
                      place, factor.blocks, layer.name, expected.matrices()));
    }
    check_owner(factor, plan.world, place);
    if (factor.sends_gradient) {
      auto& known = sender[static_cast<std::size_t>(factor.layer)];
      if (known && *known != *factor.owner) {
        throw ConfigError(
            fmt::format("{}: layer {} has owners {} and {} but exchanges its "
                        "gradient; both factors need one owner",
                        place, factor.layer, *known, *factor.owner));
      }
      const bool second = known.has_value();
      const bool adjacent = i > 0 && plan.placements[i - 1].layer == factor.layer;
      if (second && !adjacent) {
        throw ConfigError(
            fmt::format("{}: both factors of layer {} must be neighbours, because its gradient is "
                        "exchanged; make the plan again",
                        place, factor.layer));
      }
      known = factor.owner;
    }
  }
  a.expect_all(where + ": factors");
  g.expect_all(where + ": factors");
  check_owners_of_layers(plan, model, where);
  const auto sends = layers_sending_gradient(plan, model.layers.size());
  for (const FactorPlacement& factor : plan.placements) {
    if (sends[static_cast<std::size_t>(factor.layer)] != factor.sends_gradient) {
      throw ConfigError(
          fmt::format("{}: factors: those of layer {} disagree on what is exchanged; "
                      "make the plan again",
                      where, factor.layer));
    }
  }
}

std::string describe(const Route& route) {
  return route.root ? fmt::format("reduce to {}", *route.root) : "all_reduce";
}

// How a tensor must travel under the plan's placement.
class Routes {
 public:
  Routes(const Plan& plan, std::size_t layers)
      : to_owner_(plan.options.factor_reduce == FactorReduce::kOwner),
        a_(layers),
        g_(layers),
        gradient_(layers) {
    for (const FactorPlacement& factor : plan.placements) {
      const auto layer = static_cast<std::size_t>(factor.layer);
      (factor.side == FactorSide::kA ? a_ : g_)[layer] = factor.owner;
      if (factor.sends_gradient) gradient_[layer] = factor.owner;
    }
  }

  Route of(const Member& member) const {
    const auto layer = static_cast<std::size_t>(member.layer);
    std::optional<int> root;
    if (member.kind == TensorKind::kGradient) root = gradient_[layer];
    if (member.kind == TensorKind::kFactorA && to_owner_) root = a_[layer];
    if (member.kind == TensorKind::kFactorG && to_owner_) root = g_[layer];
    return root ? Route{CollectiveOp::kReduce, root} : Route{};
  }

 private:
  bool to_owner_;
  std::vector<std::optional<int>> a_, g_, gradient_;
};

[[noreturn]] void reject_message(const std::string& where, std::size_t index, const char* what) {
  throw ConfigError(fmt::format("{}: messages[{}]: {}; make the plan again", where, index, what));
}

bool carries_only(const Message& message, TensorKind kind) {
  return std::all_of(message.members.begin(), message.members.end(),
                     [&](const Member& member) { return member.kind == kind; });
}

// What the simulator and the runtime take for granted of each message.
void validate_members(const Plan& plan, const std::string& where) {
  for (std::size_t i = 0; i < plan.messages.size(); ++i) {
    const std::vector<Member>& members = plan.messages[i].members;
    if (members.empty()) reject_message(where, i, "it is empty");
    const bool means = std::any_of(members.begin(), members.end(), [](const Member& member) {
      return member.kind == TensorKind::kDiagonalMeans;
    });
    if (means && !carries_only(plan.messages[i], TensorKind::kDiagonalMeans)) {
      reject_message(where, i, "diagonal means travel apart from other tensors");
    }
  }
}

// Factors of a bulk schedule are computed when all gradients have arrived.
void validate_order(const Plan& plan, const std::string& where) {
  if (plan.options.factor_schedule != FactorSchedule::kBulk) return;
  bool behind_factors = false;
  for (std::size_t i = 0; i < plan.messages.size(); ++i) {
    const bool only_gradients = carries_only(plan.messages[i], TensorKind::kGradient);
    const std::vector<Member>& members = plan.messages[i].members;
    if (!only_gradients && std::any_of(members.begin(), members.end(), [](const Member& member) {
          return member.kind == TensorKind::kGradient;
        })) {
      reject_message(where, i, "in a bulk schedule gradients and factors travel apart");
    }
    if (behind_factors && only_gradients) {
      reject_message(where, i, "in a bulk schedule gradients leave before factors");
    }
    behind_factors =
        behind_factors ||
        (!only_gradients && !carries_only(plan.messages[i], TensorKind::kDiagonalMeans));
  }
}

// They are made from averaged factors, so they leave last, in full steps.
void validate_means(const Plan& plan, const ModelSpec& model, const std::string& where) {
  std::vector<int> layers;
  for (std::size_t i = 0; i < plan.messages.size(); ++i) {
    if (carries_only(plan.messages[i], TensorKind::kDiagonalMeans)) {
      for (const Member& member : plan.messages[i].members) layers.push_back(member.layer);
    } else if (!layers.empty()) {
      reject_message(where, i, "diagonal means leave behind all other tensors");
    }
  }
  std::sort(layers.begin(), layers.end());
  std::vector<int> needed;
  if (plan.world > 1 && plan.step == StepKind::kFull) {
    const auto message = plan::diagonal_means_message(model, plan.options, plan.placements);
    if (message) {
      for (const Member& member : message->members) needed.push_back(member.layer);
    }
  }
  if (layers == needed) return;
  throw ConfigError(
      fmt::format("{}: messages: carry the diagonal means of layers {}, the owners of the factors "
                  "need those of layers {}; make the plan again",
                  where, layers, needed));
}

void validate_messages(const Plan& plan, const ModelSpec& model, const std::string& where) {
  const std::size_t layers = model.layers.size();
  const Routes routes(plan, layers);
  // In the order of TensorKind.
  std::vector<Tally> tallies;
  for (const char* what : {"factor A", "factor G", "the gradient", "the diagonal means"}) {
    tallies.emplace_back(layers, what);
  }
  for (std::size_t i = 0; i < plan.messages.size(); ++i) {
    const Message& message = plan.messages[i];
    const std::string place = fmt::format("{}: messages[{}]", where, i);
    std::int64_t elements = 0;
    for (const Member& member : message.members) {
      check_layer(member.layer, model, place);
      tallies[static_cast<std::size_t>(member.kind)].mark(member.layer, place);
      elements +=
          member_size(model.layers[static_cast<std::size_t>(member.layer)], member.kind).elements;
      if (const Route needed = routes.of(member); message.route != needed) {
        throw ConfigError(
            fmt::format("{}: {} of layer {} is not sent to where the plan needs it (got {}, "
                        "expected {}); make the plan again",
                        place, name_of(tensor_kind_names(), member.kind), member.layer,
                        describe(message.route), describe(needed)));
      }
    }
    if (elements != message.elements) {
      throw ConfigError(
          fmt::format("{}: its tensors have {} elements (the plan says {}); make the "
                      "plan for this model",
                      place, elements, message.elements));
    }
  }
  if (plan.world == 1) return;
  const std::string place = where + ": messages";
  const auto tally = [&](TensorKind kind) -> const Tally& {
    return tallies[static_cast<std::size_t>(kind)];
  };
  tally(TensorKind::kGradient).expect_all(place);
  const bool factors = sends_factors(plan);
  for (const TensorKind kind : {TensorKind::kFactorA, TensorKind::kFactorG}) {
    if (factors) {
      tally(kind).expect_all(place);
    } else {
      tally(kind).expect_none(place);
    }
  }
}

}  // namespace

void validate_against(const Plan& plan, const ModelSpec& model, const std::string& where) {
  if (plan.model != model.name) {
    throw ConfigError(
        fmt::format("{}: the plan is for model {} (not {}); make the plan for this "
                    "model",
                    where, plan.model, model.name));
  }
  if (plan.options.second_order()) {
    validate_factors(plan, model, where);
  } else {
    expect_none(plan.placements, "factors: first-order training has none", where);
  }
  if (plan.world == 1) expect_none(plan.messages, "messages: one rank sends none", where);
  validate_members(plan, where);
  validate_messages(plan, model, where);
  validate_order(plan, where);
  validate_means(plan, model, where);
}

}  // namespace spdkfac
