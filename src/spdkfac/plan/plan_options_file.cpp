// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/plan_options_file.h"

#include "spdkfac/plan/layer_spec.h"

namespace spdkfac {
namespace {

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

PlanOptions read_options(JsonObject& object, const std::string& algorithm) {
  const auto choose = [&object]<class Enum>(const std::string& key,
                                            const std::vector<std::string>& names, Enum& field) {
    field = static_cast<Enum>(object.required(key).choice(names));
  };
  PlanOptions options;
  options.algorithm = algorithm;
  choose("factor_schedule", factor_schedule_names(), options.factor_schedule);
  choose("fusion", fusion_names(), options.fusion);
  options.threshold_bytes =
      Bytes(object.required("threshold_bytes").integer(1, std::int64_t{1} << 50));
  choose("placement", placement_names(), options.placement);
  choose("balance_by", balance_by_names(), options.balance_by);
  choose("factor_reduce", factor_reduce_names(), options.factor_reduce);
  choose("exchange", exchange_names(), options.exchange);
  const JsonValue nct_below = object.required("nct_below");
  if (!nct_below.is_null()) options.nct_below = nct_below.integer(0, 1'000'000'000);
  const JsonValue owners = object.required("owners");
  if (!owners.is_null()) options.owners = static_cast<int>(owners.integer(1, kMaxWorld));
  if (const auto method = object.optional("method")) {
    options.method = static_cast<Method>(method->choice(method_names()));
  }
  if (const auto solver = object.optional("solver")) {
    options.solver = static_cast<Solver>(solver->choice(solver_names()));
  }
  if (const auto share = object.optional("gradient_workers")) {
    options.gradient_workers = share->non_negative_number();
  }
  return options;
}

template <class Value>
void check(const Value& value, const JsonObject& object) {
  if (const auto conflict = conflict_in(value)) object.fail(*conflict);
}

}  // namespace

Json to_json(const PlanOptions& options) {
  Json result = {{"factor_schedule", name_of(factor_schedule_names(), options.factor_schedule)},
                 {"fusion", name_of(fusion_names(), options.fusion)},
                 {"threshold_bytes", options.threshold_bytes.value()},
                 {"placement", name_of(placement_names(), options.placement)},
                 {"balance_by", name_of(balance_by_names(), options.balance_by)},
                 {"factor_reduce", name_of(factor_reduce_names(), options.factor_reduce)},
                 {"exchange", name_of(exchange_names(), options.exchange)},
                 {"nct_below", or_null(options.nct_below)},
                 {"owners", or_null(options.owners)}};
  // Only where they are used, so that the digests of other plans stay.
  if (options.method != Method::kKfac) result["method"] = name_of(method_names(), options.method);
  if (keeps_basis(options.solver)) result["solver"] = name_of(solver_names(), options.solver);
  if (options.gradient_workers) result["gradient_workers"] = *options.gradient_workers;
  return result;
}

PlanOptions parse_plan_options(const JsonValue& value, const std::string& algorithm) {
  JsonObject object(value);
  PlanOptions options = read_options(object, algorithm);
  object.finish();
  check(options, object);
  return options;
}

Json to_json(const OptionsAndIntervals& both) {
  Json result = to_json(both.options);
  result["factor_interval"] = both.intervals.factors;
  result["inverse_interval"] = both.intervals.inverses;
  if (both.intervals.growing_over > 0) result["growing_over"] = both.intervals.growing_over;
  if (both.intervals.spread) result["spread_refreshes"] = true;
  return result;
}

OptionsAndIntervals parse_options_and_intervals(const JsonValue& value,
                                                const std::string& algorithm) {
  JsonObject object(value);
  OptionsAndIntervals both;
  both.options = read_options(object, algorithm);
  both.intervals.factors = object.required("factor_interval").integer(1, kMaxInterval);
  both.intervals.inverses = object.required("inverse_interval").integer(1, kMaxInterval);
  if (const auto growing = object.optional("growing_over")) {
    both.intervals.growing_over = growing->integer(1, kMaxInterval);
  }
  if (const auto spread = object.optional("spread_refreshes")) {
    both.intervals.spread = spread->boolean();
  }
  object.finish();
  check(both.options, object);
  if (!both.options.second_order() && both.intervals != RefreshIntervals{}) {
    object.fail(
        "factor_interval and inverse_interval make no sense with factor_schedule=none; "
        "first-order training has no factors, drop the intervals");
  }
  check(both.intervals, object);
  return both;
}

}  // namespace spdkfac
