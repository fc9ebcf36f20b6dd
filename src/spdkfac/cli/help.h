// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace spdkfac::cli {

// Help in lines of at most kPageWidth where words allow it: ranges, choices and flags that exclude
// each other are in words behind the text of a flag.
std::shared_ptr<CLI::Formatter> help_formatter();

// What CLI11 knows of a flag, taken apart.
struct FlagText {
  std::string names;                 // --world, or -h,--help
  std::string type;                  // P; empty for a flag without a value
  std::string text;                  // its help, with range, choices and exclusions
  std::vector<std::string> choices;  // of a flag that takes one of a few words
};
FlagText flag_text(const CLI::Option& option);

// Why a command line was refused, with the nearest verb or flag for one that does not exist. Empty
// when only the verb is missing.
std::string explain(const CLI::App& app, const CLI::ParseError& error);
// The first word names no verb.
std::string unknown_verb(const CLI::App& app, const std::string& word);

}  // namespace spdkfac::cli
