// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

#include "spdkfac/base/json.h"

namespace spdkfac::cli {

// What a verb over bundled files does: list all, show one, print one as a file.
struct Listing {
  std::function<void()> list;
  std::function<void(const std::string& name)> show;
  std::function<Json(const std::string& name)> json;
};

// Adds `verb [NAME] [--json]`.
void add_listing_verb(CLI::App& app, const std::string& verb, const std::string& help,
                      const std::string& name_help, Listing listing);

}  // namespace spdkfac::cli
