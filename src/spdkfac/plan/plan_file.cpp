// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/plan_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "spdkfac/plan/plan_options_file.h"

namespace spdkfac {
namespace {

constexpr const char* kPlanFormat = "spdkfac.plan/1";
constexpr std::int64_t kMaxLayer = 1'000'000;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 50;
constexpr const char* kMixed = "mixed";

const std::vector<std::string> kOpNames = {"all_reduce", "reduce"};
const std::vector<std::string> kSideNames = {"A", "G"};
const std::vector<std::string> kTypeNames = {"CT", "NCT"};
const std::vector<std::string> kExchangeNames = {"inverse", "gradient"};

bool has_one_kind(const Message& message) {
  return std::all_of(message.members.begin(), message.members.end(), [&](const Member& member) {
    return member.kind == message.members.front().kind;
  });
}

Json rank_json(const std::optional<int>& rank) { return rank ? Json(*rank) : Json(nullptr); }

std::optional<int> parse_rank(const JsonValue& value, int world) {
  if (value.is_null()) return std::nullopt;
  return static_cast<int>(value.integer(0, world - 1));
}

Json message_json(const Message& message) {
  Json layers = Json::array();
  Json kinds = Json::array();
  for (const Member& member : message.members) {
    layers.push_back(member.layer);
    kinds.push_back(name_of(tensor_kind_names(), member.kind));
  }
  const bool one_kind = has_one_kind(message);
  Json result = {{"kind", one_kind ? kinds.front() : Json(kMixed)}};
  if (!one_kind) result["kinds"] = std::move(kinds);
  result["layers"] = std::move(layers);
  result["elements"] = message.elements;
  result["op"] = name_of(kOpNames, message.route.op);
  result["root"] = rank_json(message.route.root);
  return result;
}

Message parse_message(const JsonValue& value, int world) {
  JsonObject object(value);
  std::vector<std::string> kind_choices = tensor_kind_names();
  kind_choices.emplace_back(kMixed);
  const std::size_t kind = object.required("kind").choice(kind_choices);
  const bool mixed = kind == tensor_kind_names().size();
  Message message;
  for (const JsonValue& layer : object.required("layers").array()) {
    message.members.push_back(
        {.kind = mixed ? TensorKind::kGradient : static_cast<TensorKind>(kind),
         .layer = static_cast<int>(layer.integer(0, kMaxLayer))});
  }
  if (message.members.empty()) value.fail("expected at least one layer (got none)");
  if (mixed) {
    const auto kinds = object.required("kinds").array();
    if (kinds.size() != message.members.size()) {
      value.fail(
          fmt::format("\"kinds\" has {} entries and \"layers\" has {}; give every layer its kind",
                      kinds.size(), message.members.size()));
    }
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      message.members[i].kind = static_cast<TensorKind>(kinds[i].choice(tensor_kind_names()));
    }
  }
  message.elements = object.required("elements").integer(1, kMaxElements);
  message.route.op = static_cast<CollectiveOp>(object.required("op").choice(kOpNames));
  message.route.root = parse_rank(object.required("root"), world);
  object.finish();
  if ((message.route.op == CollectiveOp::kReduce) != message.route.root.has_value()) {
    value.fail(fmt::format(
        "a reduce needs a root and an all_reduce has none (got {}, root {}); correct one of them",
        name_of(kOpNames, message.route.op), rank_json(message.route.root).dump()));
  }
  return message;
}

FactorPlacement parse_factor(const JsonValue& value, int world) {
  JsonObject object(value);
  FactorPlacement factor;
  factor.layer = static_cast<int>(object.required("layer").integer(0, kMaxLayer));
  factor.side = static_cast<FactorSide>(object.required("which").choice(kSideNames));
  factor.dim = object.required("dim").integer(1, 1'000'000);
  if (const auto blocks = object.optional("blocks")) {
    factor.blocks = blocks->integer(1, kMaxElements);
  }
  const bool communicated = object.required("type").choice(kTypeNames) == 0;
  factor.owner = parse_rank(object.required("owner"), world);
  factor.sends_gradient = object.required("exchange").choice(kExchangeNames) == 1;
  object.finish();
  if (communicated != factor.owner.has_value()) {
    value.fail(fmt::format(
        "a CT needs an owner and an NCT has none (got {}, owner {}); correct one of them",
        kTypeNames[communicated ? 0 : 1], rank_json(factor.owner).dump()));
  }
  if (factor.sends_gradient && !factor.owner) {
    value.fail("an NCT exchanges nothing (got exchange gradient); write inverse");
  }
  return factor;
}

void parse_predicted(const JsonValue& value, Plan& plan) {
  JsonObject object(value);
  plan.predicted_iteration = Seconds(object.required("iteration").non_negative_number());
  JsonObject breakdown(object.required("breakdown"));
  for (const Category category : kCategories) {
    plan.predicted_breakdown[category] =
        Seconds(breakdown.required(std::string(category_name(category))).non_negative_number());
  }
  breakdown.finish();
  object.finish();
}

}  // namespace

const std::vector<std::string>& step_names() {
  static const std::vector<std::string> names = {"full", "factors", "gradients"};
  return names;
}

const std::vector<std::string>& tensor_kind_names() {
  static const std::vector<std::string> names = {"factor_a", "factor_g", "gradient",
                                                 "diagonal_means"};
  return names;
}

Json to_json(const Plan& plan) {
  Json messages = Json::array();
  for (const Message& message : plan.messages) messages.push_back(message_json(message));
  Json factors = Json::array();
  for (const FactorPlacement& factor : plan.placements) {
    factors.push_back({{"layer", factor.layer},
                       {"which", name_of(kSideNames, factor.side)},
                       {"dim", factor.dim},
                       {"type", kTypeNames[factor.owner ? 0 : 1]},
                       {"owner", rank_json(factor.owner)},
                       {"exchange", kExchangeNames[factor.sends_gradient ? 1 : 0]}});
    if (factor.blocks != 1) factors.back()["blocks"] = factor.blocks;
  }
  Json result = {{"format", kPlanFormat},
                 {"algorithm", plan.algorithm},
                 {"model", plan.model},
                 {"world", plan.world},
                 {"step", name_of(step_names(), plan.step)},
                 {"options", to_json(OptionsAndIntervals{plan.options, plan.intervals})},
                 {"messages", std::move(messages)},
                 {"factors", std::move(factors)}};
  if (plan.predicted_iteration) {
    Json breakdown;
    for (const Category category : kCategories) {
      breakdown[std::string(category_name(category))] = plan.predicted_breakdown[category].value();
    }
    result["predicted"] = {{"iteration", plan.predicted_iteration->value()},
                           {"breakdown", std::move(breakdown)}};
  }
  return result;
}

Plan parse_plan(const Json& document, const std::string& where) {
  JsonObject object{JsonValue(document, where)};
  object.expect_format(kPlanFormat);
  Plan plan;
  plan.algorithm = parse_name(object.required("algorithm"));
  plan.model = parse_name(object.required("model"));
  plan.world = static_cast<int>(object.required("world").integer(1, kMaxWorld));
  plan.step = static_cast<StepKind>(object.required("step").choice(step_names()));
  OptionsAndIntervals chosen =
      parse_options_and_intervals(object.required("options"), plan.algorithm);
  plan.options = std::move(chosen.options);
  plan.intervals = chosen.intervals;
  for (const JsonValue& value : object.required("messages").array()) {
    plan.messages.push_back(parse_message(value, plan.world));
  }
  for (const JsonValue& value : object.required("factors").array()) {
    plan.placements.push_back(parse_factor(value, plan.world));
  }
  if (const auto value = object.optional("predicted")) parse_predicted(*value, plan);
  object.finish();
  return plan;
}

Plan read_plan(const std::filesystem::path& path) {
  return parse_plan(read_json_file(path), path.string());
}

}  // namespace spdkfac
