// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "spdkfac/base/json.h"

namespace spdkfac::train {

// A file that JSON lines are appended to, each as soon as it is there.
class MetricsFile {
 public:
  // Empty: no file. One that cannot be written is a ConfigError.
  explicit MetricsFile(const std::string& path);
  void append(const Json& line) const;

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace spdkfac::train
