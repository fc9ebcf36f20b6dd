// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "spdkfac/base/json.h"

namespace spdkfac::cli {

// Writes to stdout; a closed or full stdout is an Error, so that nothing is lost in silence.
void print(std::string_view text);
void print_json(const Json& document);

// A bar on stderr for long work, when stderr is a terminal; otherwise silent.
class Progress {
 public:
  Progress(std::string what, std::size_t steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void advance();

 private:
  void draw() const;

  std::string what_;
  std::size_t steps_;
  std::size_t done_ = 0;
  bool shown_;
};

}  // namespace spdkfac::cli
