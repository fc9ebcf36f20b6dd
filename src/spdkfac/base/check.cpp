// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/check.h"

#include <filesystem>

#include <fmt/format.h>

namespace spdkfac {

void fail_check(const char* file, int line, const char* condition, const std::string& message) {
  throw InternalError(fmt::format("{}:{}: check failed: {} ({}); this is a bug in spdkfac",
                                  std::filesystem::path(file).filename().string(), line, condition,
                                  message));
}

}  // namespace spdkfac
