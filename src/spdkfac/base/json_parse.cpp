// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <iterator>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/base/json_text.h"

namespace spdkfac {
namespace {

constexpr std::string_view kWhitespace = " \t\r\n";

[[noreturn]] void fail_at(std::string_view text, std::size_t offset, const std::string& where,
                          const std::string& message) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (const char c : text.substr(0, offset)) {
    if (c == '\n') {
      ++line;
      column = 1;
    } else if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) {  // columns count characters
      ++column;
    }
  }
  throw ConfigError(fmt::format("{}: line {}, column {}: {}", where, line, column, message));
}

// Offset of the quote that opens the string closed at `closing_quote`.
std::size_t opening_quote(std::string_view text, std::size_t closing_quote) {
  std::size_t at = closing_quote;
  std::size_t backslashes = 0;
  do {
    at = text.rfind('"', at - 1);
    backslashes = 0;
    while (backslashes < at && text[at - 1 - backslashes] == '\\') ++backslashes;
  } while (backslashes % 2 == 1);
  return at;
}

// A number or a name, right or wrong.
struct Word {
  std::size_t offset;
  std::string_view text;
};

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("+-._").find(c) != std::string_view::npos;
}

// The word that covers `at` or ends before it.
Word word_near(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  while (begin > 0 && is_word_character(text[begin - 1])) --begin;
  std::size_t end = at;
  while (end < text.size() && is_word_character(text[end])) ++end;
  return {begin, text.substr(begin, end - begin)};
}

bool is_nan_or_infinity(std::string_view word) {
  if (!word.empty() && (word[0] == '-' || word[0] == '+')) word.remove_prefix(1);
  std::string lower(word.substr(0, 9));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower == "nan" || lower == "inf" || lower == "infinity";
}

struct Problem {
  std::size_t offset;
  std::string message;
};

// The word at fault; without text when `at` is a character that belongs to none.
Word find_faulty_word(std::string_view text, std::size_t at, bool is_invalid_token) {
  const Word word = word_near(text, at);
  if (is_word_character(text[at])) return word;
  // A token may be cut short by the character after it, as in `tru]` or `1.]`.
  const bool is_number = !word.text.empty() && std::isdigit(word.text.back()) != 0;
  const bool is_name = word.text == "true" || word.text == "false" || word.text == "null";
  return is_invalid_token && !is_number && !is_name ? word : Word{at, {}};
}

Problem describe_unexpected(std::string_view text, std::size_t at, std::string_view reason) {
  constexpr std::string_view kAdvice = "check the commas, quotes and brackets around it";
  const char c = text[at];
  if (c == '/') return {at, "comments are not allowed; remove them"};
  if (c == ']' || c == '}') {
    const std::size_t before = at == 0 ? text.npos : text.find_last_not_of(kWhitespace, at - 1);
    if (before != text.npos && text[before] == ',') return {before, "trailing comma; remove it"};
  }
  const auto says = [&](std::string_view part) { return reason.find(part) != reason.npos; };
  const Word word = find_faulty_word(text, at, says("invalid literal") || says("invalid number"));
  if (says("while parsing object key")) {
    return {word.offset, "expected a key; write it in double quotes"};
  }
  if (is_nan_or_infinity(word.text)) {
    return {word.offset, fmt::format("{} is not a JSON number; write a finite number", word.text)};
  }
  if (!word.text.empty()) {
    return {word.offset, fmt::format("unexpected {}; {}", json_text::quote(word.text), kAdvice)};
  }
  if (c == '"') return {opening_quote(text, at), fmt::format("unexpected string; {}", kAdvice)};
  if (c == '\'') return {at, "unexpected single quote; write strings in double quotes"};
  if (c < ' ' || c > '~') {
    return {at,
            fmt::format("unexpected byte 0x{:02X}; {}", static_cast<unsigned char>(c), kAdvice)};
  }
  return {at, fmt::format("unexpected '{}'; {}", c, kAdvice)};
}

// Puts nlohmann's syntax errors into our words. `consumed` counts the character at fault; the end
// of the text counts as one.
Problem describe_syntax_error(std::string_view text, std::size_t consumed,
                              const Json::exception& error) {
  constexpr int kNumberOverflow = 406;  // the id nlohmann documents for it
  const std::string_view reason = error.what();
  const auto says = [&](std::string_view part) { return reason.find(part) != reason.npos; };
  if (error.id == kNumberOverflow) {
    const Word word = word_near(text, std::min(consumed, text.size()) - 1);
    return {word.offset, fmt::format("number {} is out of range; numbers are 64-bit floats",
                                     json_text::quote(word.text))};
  }
  if (consumed > text.size()) {
    return {text.size(), "the text ends too early; check that it is complete"};
  }
  const std::size_t at = consumed - 1;
  if (says("ill-formed UTF-8") || says("invalid BOM")) {
    return {at, "invalid UTF-8; save the text as UTF-8"};
  }
  if (says("invalid string: control character")) {
    return {at, "line break or control character inside a string; escape it as in \\n"};
  }
  if (says("invalid string")) {
    return {at, "invalid escape inside a string; write a backslash as \\\\"};
  }
  return describe_unexpected(text, at, reason);
}

// Walks over the text for nlohmann's parser and tells the builder how far it has come.
class Cursor {
 public:
  // Names that the standard asks for.
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char*& reached) : at_(at), reached_(&reached) {}

  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// Builds the document bottom up and stops at the first thing that is not allowed.
class DocumentBuilder : public nlohmann::json_sax<Json> {
 public:
  DocumentBuilder(std::string_view text, const std::string& where)
      : text_(text), where_(where), reached_(text.data()) {}

  Json build() {
    const Cursor begin(text_.data(), reached_);
    const Cursor end(text_.data() + text_.size(), reached_);
    Json::sax_parse(begin, end, this);
    return std::move(root_);
  }

  bool null() override { return add(Json(nullptr)); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return open(/*is_object=*/true); }
  bool start_array(std::size_t) override { return open(/*is_object=*/false); }

  bool key(string_t& key) override {
    Level& level = levels_.back();
    if (!level.distinct_keys.insert(key).second) {
      const std::string path = current_path();
      const std::size_t offset = opening_quote(text_, offset_reached() - 1);
      fail_at(text_, offset, where_,
              fmt::format("duplicate key {} in {}; remove one of them", json_text::quote(key),
                          path.empty() ? "the top-level object" : path));
    }
    level.keys.push_back(std::move(key));
    return true;
  }

  bool end_object() override {
    Level level = close();
    Json object = Json::object();
    // Straight into the vector below: inserting by key would search it each time.
    auto& fields = object.get_ref<Json::object_t&>();
    fields.reserve(level.keys.size());
    for (std::size_t i = 0; i < level.keys.size(); ++i) {
      fields.emplace_back(std::move(level.keys[i]), std::move(level.values[i]));
    }
    return add(std::move(object));
  }

  bool end_array() override { return add(Json(std::move(close().values))); }

  bool parse_error(std::size_t consumed, const std::string&,
                   const Json::exception& error) override {
    Problem problem = describe_syntax_error(text_, consumed, error);
    if (complete_ && !text_.substr(problem.offset).starts_with('/')) {
      problem.message = "text after the end of the document; remove it";
    }
    fail_at(text_, problem.offset, where_, problem.message);
  }

 private:
  // An object or array whose end has not been seen.
  struct Level {
    bool is_object;
    std::vector<std::string> keys;
    std::vector<Json> values;
    std::unordered_set<std::string> distinct_keys;
  };

  std::size_t offset_reached() const { return static_cast<std::size_t>(reached_ - text_.data()); }

  bool add(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      complete_ = true;
    } else {
      levels_.back().values.push_back(std::move(value));
    }
    return true;
  }

  bool open(bool is_object) {
    if (levels_.size() == static_cast<std::size_t>(kMaxJsonDepth)) {
      fail_at(text_, offset_reached() - 1, where_,
              fmt::format("nested deeper than {} levels; make it flatter", kMaxJsonDepth));
    }
    levels_.push_back({.is_object = is_object, .keys = {}, .values = {}, .distinct_keys = {}});
    return true;
  }

  Level close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return level;
  }

  // Path of the innermost open object or array.
  std::string current_path() const {
    std::string path;
    for (std::size_t i = 0; i + 1 < levels_.size(); ++i) {
      const Level& level = levels_[i];
      path = level.is_object ? json_text::field_path(path, level.keys.back())
                             : json_text::element_path(path, level.values.size());
    }
    return path;
  }

  std::string_view text_;
  const std::string& where_;
  const char* reached_;
  std::vector<Level> levels_;
  Json root_;
  bool complete_ = false;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  if (text.find_first_not_of(kWhitespace) == text.npos) {
    fail_at(text, 0, where, "the text is empty; write one JSON value");
  }
  // nlohmann takes a zero byte for the end of the text and would not look at the rest.
  if (const std::size_t zero = text.find('\0'); zero != text.npos) {
    fail_at(text, zero, where, "zero byte; check that this is a JSON text");
  }
  return DocumentBuilder(text, where).build();
}

}  // namespace spdkfac
