// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/counters_json.h"

#include <limits>

namespace spdkfac::runtime {

std::vector<std::pair<const char*, std::int64_t KfacCounters::*>> counter_fields() {
  return {{"steps", &KfacCounters::steps},
          {"factor_updates", &KfacCounters::factor_updates},
          {"inverse_updates", &KfacCounters::inverse_updates},
          {"inverses_skipped", &KfacCounters::inverses_skipped},
          {"nonfinite_factors", &KfacCounters::nonfinite_factors},
          {"inverse_retries", &KfacCounters::inverse_retries},
          {"inverses_kept", &KfacCounters::inverses_kept},
          {"nonfinite_gradients", &KfacCounters::nonfinite_gradients},
          {"layers_without_factors", &KfacCounters::layers_without_factors},
          {"layers_scaled", &KfacCounters::layers_scaled}};
}

Json counters_json(const KfacCounters& counters) {
  Json json = Json::object();
  for (const auto& [name, field] : counter_fields()) json[name] = counters.*field;
  return json;
}

KfacCounters parse_counters(const std::string& text, const std::string& where) {
  const Json document = parse_json(text, where);
  JsonObject object{JsonValue(document, where)};
  KfacCounters counters;
  for (const auto& [name, field] : counter_fields()) {
    counters.*field = object.required(name).integer(0, std::numeric_limits<std::int64_t>::max());
  }
  object.finish();
  return counters;
}

}  // namespace spdkfac::runtime
