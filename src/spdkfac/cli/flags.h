// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "spdkfac/plan/plan_options.h"

namespace spdkfac::cli {

// `3x224x224` as channels, height, width; anything else is a ConfigError that names the flag.
std::vector<std::int64_t> parse_shape(const std::string& flag, const std::string& text);

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
};

}  // namespace spdkfac::cli
