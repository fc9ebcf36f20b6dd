// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "spdkfac/base/json.h"
#include "spdkfac/bench/progress.h"
#include "spdkfac/cli/output.h"

namespace spdkfac::cli {

// Where the result of a benchmark goes. Flags are bound to members, so an object must outlive the
// parsing.
struct RecordFlags {
  std::string out;
  bool json = false;

  void add_to(CLI::App& verb);
};

// Writes the record to --out, and prints it with --json, or else the text.
void write_record(const Json& record, const std::string& text, const RecordFlags& flags,
                  int indent = 1);

// Draws the progress of a benchmark; must outlive its listener.
class ProgressBar {
 public:
  bench::ProgressListener listener();
  void end() { progress_.reset(); }

 private:
  std::optional<Progress> progress_;
};

}  // namespace spdkfac::cli
