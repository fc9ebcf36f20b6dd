// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/cluster_file.h"

#include <fmt/format.h>

namespace spdkfac {
namespace {

constexpr const char* kClusterFormat = "spdkfac.cluster/1";
// A day: longer single operations are a unit mistake, and keep sums of times finite.
constexpr double kMaxClusterSeconds = 86400;
// In flops per second: below any machine and above all of them together.
constexpr double kMinRate = 1;
constexpr double kMaxRate = 1e24;

const std::vector<std::string> kScalingNames = {"log", "linear", "constant"};
const std::vector<std::string> kTaskOrderNames = {"factors_between_passes",
                                                  "factors_around_passes"};
const std::vector<std::string> kInverseNames = {"exponential", "power", "cubic", "table"};

double seconds(const JsonValue& value) { return value.number(0, kMaxClusterSeconds); }

Seconds optional_seconds(JsonObject& object, const std::string& key) {
  const auto value = object.optional(key);
  return Seconds(value ? seconds(*value) : 0);
}

CostTable parse_table(const JsonValue& value) {
  std::vector<std::pair<double, Seconds>> points;
  for (const JsonValue& point : value.array()) {
    const auto pair = point.array();
    if (pair.size() != 2) {
      point.fail(fmt::format("expected a pair [size, seconds] (got {} values)", pair.size()));
    }
    const double size = pair[0].number(0, 1e15);
    const Seconds time(seconds(pair[1]));
    // Sizes count elements or rows. Closer ones would give slopes that are not finite.
    if (!points.empty() && size < points.back().first + 1) {
      pair[0].fail(
          fmt::format("sizes must increase by at least 1 (got {} after {}); sort the points and "
                      "remove duplicates",
                      size, points.back().first));
    }
    if (!points.empty() && time < points.back().second) {
      pair[1].fail(
          fmt::format("seconds must not decrease (got {} after {}); smooth the measurement",
                      time.value(), points.back().second.value()));
    }
    points.emplace_back(size, time);
  }
  if (points.empty()) value.fail("expected at least one point (got none)");
  return CostTable(std::move(points));
}

CollectiveCost parse_collective(const JsonValue& value) {
  JsonObject object(value);
  const Seconds per_tensor = optional_seconds(object, "per_tensor");
  if (const auto table = object.optional("table")) {
    CollectiveCost cost(parse_table(*table), per_tensor);
    object.finish();
    return cost;
  }
  const Seconds alpha(seconds(object.required("alpha")));
  const Seconds beta(object.required("beta").number(0, 1));
  object.finish();
  return {alpha, beta, per_tensor};
}

InverseCost parse_inverse(const JsonValue& value) {
  JsonObject object(value);
  InverseCost cost;
  switch (object.required("kind").choice(kInverseNames)) {
    case 0:
      cost = ExponentialInverse{.alpha = seconds(object.required("alpha")),
                                .beta = object.required("beta").number(0, 1)};
      break;
    case 1:
      cost = PowerInverse{.coefficient = object.required("coefficient").number(0, 1),
                          .exponent = object.required("exponent").number(0, 4)};
      break;
    case 2:
      cost = CubicInverse{.c0 = object.required("c0").number(0, kMaxClusterSeconds),
                          .c1 = object.required("c1").number(0, 1),
                          .c2 = object.required("c2").number(0, 1),
                          .c3 = object.required("c3").number(0, 1)};
      break;
    default:
      cost = parse_table(object.required("points"));
  }
  object.finish();
  return cost;
}

ComputeRates parse_rates(const JsonValue& value) {
  JsonObject object(value);
  ComputeRates rates{
      .forward = FlopsPerSecond(object.required("forward").number(kMinRate, kMaxRate)),
      .factor = FlopsPerSecond(object.required("factor").number(kMinRate, kMaxRate)),
      .precondition = FlopsPerSecond(object.required("precondition").number(kMinRate, kMaxRate))};
  object.finish();
  return rates;
}

MeasuredTotals parse_totals(const JsonValue& value) {
  JsonObject object(value);
  MeasuredTotals totals{.batch = object.required("batch").integer(1, 1'000'000'000),
                        .forward_backward = Seconds(seconds(object.required("forward_backward"))),
                        .factors = Seconds(seconds(object.required("factors")))};
  object.finish();
  return totals;
}

Overheads parse_overheads(const JsonValue& value) {
  JsonObject object(value);
  Overheads overheads;
  overheads.host_per_tensor = optional_seconds(object, "host_per_tensor");
  overheads.pack_per_element = optional_seconds(object, "pack_per_element");
  overheads.unpack_per_element = optional_seconds(object, "unpack_per_element");
  if (const auto on_arrival = object.optional("unpack_on_arrival")) {
    overheads.unpack_on_arrival = on_arrival->boolean();
  }
  if (const auto rate = object.optional("compute_rate_under_communication")) {
    overheads.compute_rate_under_communication = rate->number(0.01, 1);
  }
  if (const auto rate = object.optional("communication_rate_under_computation")) {
    overheads.communication_rate_under_computation = rate->number(0.01, 1);
  }
  object.finish();
  return overheads;
}

Json table_json(const CostTable& table) {
  Json points = Json::array();
  for (const auto& [x, time] : table.points()) points.push_back({x, time.value()});
  return points;
}

Json collective_json(const CollectiveCost& cost) {
  Json result = cost.table() ? Json{{"table", table_json(*cost.table())}}
                             : Json{{"alpha", cost.alpha().value()}, {"beta", cost.beta().value()}};
  if (cost.per_tensor() > Seconds(0)) result["per_tensor"] = cost.per_tensor().value();
  return result;
}

Json inverse_json(const InverseCost& cost) {
  struct Write {
    Json operator()(const ExponentialInverse& c) const {
      return {{"kind", "exponential"}, {"alpha", c.alpha}, {"beta", c.beta}};
    }
    Json operator()(const PowerInverse& c) const {
      return {{"kind", "power"}, {"coefficient", c.coefficient}, {"exponent", c.exponent}};
    }
    Json operator()(const CubicInverse& c) const {
      return {{"kind", "cubic"}, {"c0", c.c0}, {"c1", c.c1}, {"c2", c.c2}, {"c3", c.c3}};
    }
    Json operator()(const CostTable& table) const {
      return {{"kind", "table"}, {"points", table_json(table)}};
    }
  };
  return std::visit(Write{}, cost);
}

}  // namespace

CostModel parse_cluster(const Json& document, const std::string& where) {
  JsonObject object{JsonValue(document, where)};
  object.expect_format(kClusterFormat);
  CostModel costs;
  costs.name = parse_name(object.required("name"));
  costs.world = static_cast<int>(object.required("world").integer(1, kMaxWorld));
  costs.source = object.required("source").string();
  JsonObject collectives(object.required("collectives"));
  costs.all_reduce = parse_collective(collectives.required("all_reduce"));
  costs.broadcast = parse_collective(collectives.required("broadcast"));
  costs.reduce = parse_collective(collectives.required("reduce"));
  // Files of earlier versions have it; its costs are not used.
  if (const auto unused = collectives.optional("all_gather")) parse_collective(*unused);
  collectives.finish();
  costs.inverse = parse_inverse(object.required("inverse"));
  if (const auto compute = object.optional("compute")) costs.compute = parse_rates(*compute);
  if (const auto models = object.optional("models")) {
    for (const auto& [name, value] : JsonObject(*models).entries()) {
      costs.models[name] = parse_totals(value);
    }
  }
  if (const auto value = object.optional("overheads")) costs.overheads = parse_overheads(*value);
  if (const auto value = object.optional("task_order")) {
    costs.task_order = static_cast<TaskOrder>(value->choice(kTaskOrderNames));
  }
  if (const auto value = object.optional("scaling")) {
    JsonObject scaling(*value);
    costs.alpha_scaling =
        static_cast<AlphaScaling>(scaling.required("alpha").choice(kScalingNames));
    scaling.finish();
  }
  if (const auto value = object.optional("nct_below")) {
    costs.nct_below = value->integer(0, 1'000'000'000);
  }
  if (const auto value = object.optional("provenance")) {
    for (const auto& [name, text] : JsonObject(*value).entries()) {
      costs.provenance[name] = text.string();
    }
  }
  object.finish();
  return costs;
}

CostModel read_cluster(const std::filesystem::path& path) {
  return parse_cluster(read_json_file(path), path.string());
}

Json to_json(const CostModel& costs) {
  Json result = {{"format", kClusterFormat},
                 {"name", costs.name},
                 {"world", costs.world},
                 {"source", costs.source},
                 {"collectives",
                  {{"all_reduce", collective_json(costs.all_reduce)},
                   {"reduce", collective_json(costs.reduce)},
                   {"broadcast", collective_json(costs.broadcast)}}},
                 {"inverse", inverse_json(costs.inverse)}};
  if (costs.compute) {
    result["compute"] = {{"forward", costs.compute->forward.value()},
                         {"factor", costs.compute->factor.value()},
                         {"precondition", costs.compute->precondition.value()}};
  }
  for (const auto& [name, totals] : costs.models) {
    result["models"][name] = {{"batch", totals.batch},
                              {"forward_backward", totals.forward_backward.value()},
                              {"factors", totals.factors.value()}};
  }
  result["overheads"] = {
      {"host_per_tensor", costs.overheads.host_per_tensor.value()},
      {"pack_per_element", costs.overheads.pack_per_element.value()},
      {"unpack_per_element", costs.overheads.unpack_per_element.value()},
      {"compute_rate_under_communication", costs.overheads.compute_rate_under_communication}};
  if (costs.overheads.unpack_on_arrival) result["overheads"]["unpack_on_arrival"] = true;
  if (costs.overheads.communication_rate_under_computation < 1) {
    result["overheads"]["communication_rate_under_computation"] =
        costs.overheads.communication_rate_under_computation;
  }
  result["task_order"] = kTaskOrderNames[static_cast<std::size_t>(costs.task_order)];
  result["scaling"] = {{"alpha", kScalingNames[static_cast<std::size_t>(costs.alpha_scaling)]}};
  if (costs.nct_below) result["nct_below"] = *costs.nct_below;
  for (const auto& [name, text] : costs.provenance) result["provenance"][name] = text;
  return result;
}

}  // namespace spdkfac
