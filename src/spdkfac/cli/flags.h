// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "spdkfac/plan/plan_options.h"

namespace spdkfac::cli {

// The whole text as a number; nothing for anything else.
template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [next, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || next != end) return std::nullopt;
  return value;
}

// What a flag accepts. The help shows it in words behind the flag's text, and another value is a
// mistake whose message says what was expected.
CLI::Validator count(std::int64_t min, std::int64_t max);
CLI::Validator number(double min, double max);
CLI::Validator one_of(const std::vector<std::string>& names);
// Bytes: 1048576, 64MB, 16KiB; becomes the number.
CLI::Validator size_in_bytes(std::int64_t max);

// `3x224x224` as channels, height, width; anything else is a ConfigError that names the flag.
std::vector<std::int64_t> parse_shape(const std::string& flag, const std::string& text);

// The value of a word that one_of(names) has let through.
template <class Enum>
Enum value_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<Enum>(std::find(names.begin(), names.end(), name) - names.begin());
}

// "flags: --a and --b cannot be combined; …"
std::string conflict_text(const std::string& first, const std::string& second);

// The flags that vary an algorithm. They are bound to members, so an object must outlive the
// parsing.
class PlanFlags {
 public:
  void add_to(CLI::App& verb, const std::string& group);

  bool any() const;
  // The preset of an algorithm with the flags applied, not validated yet. Flags beside `auto`,
  // which chooses itself, are a ConfigError.
  PlanOptions options(const std::string& algorithm) const;

 private:
  std::optional<std::string> factor_schedule_;
  std::optional<std::string> fusion_;
  std::optional<std::int64_t> threshold_bytes_;
  std::optional<std::string> placement_;
  std::optional<std::string> balance_by_;
  std::optional<std::string> factor_reduce_;
  std::optional<std::string> exchange_;
  std::optional<std::int64_t> nct_below_;
  std::optional<int> owners_;
  std::optional<std::string> method_;
  std::optional<double> gradient_workers_;
};

}  // namespace spdkfac::cli
