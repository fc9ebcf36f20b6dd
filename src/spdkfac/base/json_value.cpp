// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/base/json_text.h"
#include "spdkfac/base/nearest_name.h"

namespace spdkfac {
namespace {

std::string describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) return json_text::quote(value.get_ref<const std::string&>());
  return value.dump();
}

// `an integer of at least 1`, `a number from 0 to 1`; a bound at the end of the type goes unsaid.
template <class T>
std::string describe_range(std::string_view kind, T min, T max) {
  const bool has_min = min > std::numeric_limits<T>::lowest();
  const bool has_max = max < std::numeric_limits<T>::max();
  if (has_min && has_max) return fmt::format("{} from {} to {}", kind, min, max);
  if (has_min) return fmt::format("{} of at least {}", kind, min);
  if (has_max) return fmt::format("{} of at most {}", kind, max);
  return std::string(kind);
}

std::string advice_for_unknown(const std::string& key, const std::set<std::string>& known) {
  const std::string nearest = nearest_name(key, known);
  if (!nearest.empty()) return fmt::format("did you mean {}?", json_text::quote(nearest));
  if (known.empty()) return "no fields are allowed here";
  return fmt::format("known fields are {}", fmt::join(known, ", "));
}

}  // namespace

JsonValue::JsonValue(const Json& value, std::string where, std::string path)
    : value_(&value), where_(std::move(where)), path_(std::move(path)) {}

std::int64_t JsonValue::integer(std::int64_t min, std::int64_t max) const {
  const bool fits = value_->is_number_unsigned()
                        ? std::in_range<std::int64_t>(value_->get<std::uint64_t>())
                        : value_->is_number_integer();
  if (fits) {
    const auto value = value_->get<std::int64_t>();
    if (min <= value && value <= max) return value;
  }
  fail_expected(describe_range("an integer", min, max));
}

double JsonValue::number(double min, double max) const {
  if (value_->is_number()) {
    const auto value = value_->get<double>();
    if (std::isfinite(value) && min <= value && value <= max) return value;
  }
  fail_expected(describe_range("a number", min, max));
}

double JsonValue::non_negative_number() const {
  if (value_->is_number()) {
    const auto value = value_->get<double>();
    if (std::isfinite(value) && value >= 0) return value;
  }
  fail_expected("a non-negative number");
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) fail_expected("true or false");
  return value_->get<bool>();
}

std::string JsonValue::string() const {
  if (!value_->is_string()) fail_expected("a string");
  return value_->get<std::string>();
}

std::string JsonValue::non_empty_string() const {
  if (!value_->is_string() || value_->get_ref<const std::string&>().empty()) {
    fail_expected("a non-empty string");
  }
  return value_->get<std::string>();
}

std::size_t JsonValue::choice(const std::vector<std::string>& choices) const {
  if (value_->is_string()) {
    const auto found =
        std::find(choices.begin(), choices.end(), value_->get_ref<const std::string&>());
    if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  }
  std::vector<std::string> shown;
  shown.reserve(choices.size());
  for (const std::string& choice : choices) shown.push_back(json_text::quote(choice));
  fail_expected(fmt::format("one of {}", fmt::join(shown, ", ")));
}

std::vector<JsonValue> JsonValue::array() const {
  if (!value_->is_array()) fail_expected("an array");
  std::vector<JsonValue> elements;
  elements.reserve(value_->size());
  for (const Json& element : *value_) {
    elements.emplace_back(element, where_, json_text::element_path(path_, elements.size()));
  }
  return elements;
}

bool JsonValue::is_null() const { return value_->is_null(); }
bool JsonValue::is_object() const { return value_->is_object(); }
bool JsonValue::is_array() const { return value_->is_array(); }
bool JsonValue::is_string() const { return value_->is_string(); }

void JsonValue::fail(const std::string& message) const {
  if (path_.empty()) throw ConfigError(fmt::format("{}: {}", where_, message));
  throw ConfigError(fmt::format("{}: {}: {}", where_, path_, message));
}

void JsonValue::fail_expected(const std::string& what) const {
  fail(fmt::format("expected {} (got {})", what, describe(*value_)));
}

std::string parse_name(const JsonValue& value) {
  std::string name = value.non_empty_string();
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7F; };
  if (std::any_of(name.begin(), name.end(), is_control)) {
    value.fail("line break or control character in a name; remove it");
  }
  return name;
}

JsonObject::JsonObject(const JsonValue& value) : value_(value) {
  if (!value_.is_object()) value_.fail_expected("an object");
}

JsonValue JsonObject::required(const std::string& key) {
  if (std::optional<JsonValue> found = optional(key)) return *std::move(found);
  fail(fmt::format("missing field {}; add it", json_text::quote(key)));
}

std::optional<JsonValue> JsonObject::optional(const std::string& key) {
  seen_.insert(key);
  const Json& object = value_.json();
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  return child(key, *found);
}

std::vector<std::pair<std::string, JsonValue>> JsonObject::entries() {
  std::vector<std::pair<std::string, JsonValue>> fields;
  fields.reserve(value_.json().size());
  for (const auto& [key, value] : value_.json().items()) {
    seen_.insert(key);
    fields.emplace_back(key, child(key, value));
  }
  return fields;
}

void JsonObject::expect_format(const std::string& expected) {
  const JsonValue format = required("format");
  if (format.json() != Json(expected)) format.fail_expected(json_text::quote(expected));
}

void JsonObject::finish() const {
  for (const auto& [key, value] : value_.json().items()) {
    if (!seen_.contains(key)) {
      fail(fmt::format("unknown field {}; {}", json_text::quote(key),
                       advice_for_unknown(key, seen_)));
    }
  }
}

JsonValue JsonObject::child(const std::string& key, const Json& value) const {
  return JsonValue(value, value_.where_, json_text::field_path(value_.path_, key));
}

}  // namespace spdkfac
