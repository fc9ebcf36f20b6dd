// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace spdkfac {

// Keeps the order of keys, so that what we write reads like what we document.
using Json = nlohmann::ordered_json;

// Parses strictly: one value, no comments, no duplicate keys, at most kMaxJsonDepth levels.
// `where` names the text in errors, as in `where: line 3, column 14: …`.
constexpr int kMaxJsonDepth = 64;
Json parse_json(std::string_view text, const std::string& where);

// Reads and parses a file; a missing, unreadable, too large or truncated file is a ConfigError.
Json read_json_file(const std::filesystem::path& path);

// Writes to a temporary name beside `path` and renames, so that no reader sees half a file.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// A value inside a document together with its place, for errors such as
// `model.json: layers[3].d_a: expected an integer of at least 1 (got -4)`.
class JsonValue {
 public:
  JsonValue(const Json& value, std::string where, std::string path = "");

  // Numbers are finite by construction of JSON; bounds are inclusive.
  std::int64_t integer(std::int64_t min, std::int64_t max) const;
  double number(double min, double max) const;
  double non_negative_number() const;
  bool boolean() const;
  std::string string() const;  // may be empty
  std::string non_empty_string() const;
  // The value must be one of `choices`; returns its index.
  std::size_t choice(const std::vector<std::string>& choices) const;
  std::vector<JsonValue> array() const;
  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;

  const Json& json() const { return *value_; }
  const std::string& path() const { return path_; }

  // Throws a ConfigError at this place: `where: path: message`.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  friend class JsonObject;

  [[noreturn]] void fail_expected(const std::string& what) const;

  const Json* value_;
  std::string where_;
  std::string path_;
};

// A name as messages and tables can show it: a non-empty string without control characters.
std::string parse_name(const JsonValue& value);

// Reads an object field by field. Call finish() at the end: it rejects fields nobody asked for.
class JsonObject {
 public:
  explicit JsonObject(const JsonValue& value);

  JsonValue required(const std::string& key);
  std::optional<JsonValue> optional(const std::string& key);
  // All fields in document order; for maps whose keys are data.
  std::vector<std::pair<std::string, JsonValue>> entries();
  // Throws unless field `format` is exactly `expected`.
  void expect_format(const std::string& expected);
  void finish() const;

  [[noreturn]] void fail(const std::string& message) const { value_.fail(message); }

 private:
  JsonValue child(const std::string& key, const Json& value) const;

  JsonValue value_;
  std::set<std::string> seen_;
};

}  // namespace spdkfac
