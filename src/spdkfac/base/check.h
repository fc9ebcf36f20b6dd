// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace spdkfac {

// A broken invariant of ours, never the user's fault.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* file, int line, const char* condition,
                             const std::string& message);

}  // namespace spdkfac

// Holds in every build type; `message` is evaluated only on failure.
#define SPDKFAC_CHECK(condition, message)                             \
  do {                                                                \
    if (!(condition)) [[unlikely]] {                                  \
      ::spdkfac::fail_check(__FILE__, __LINE__, #condition, message); \
    }                                                                 \
  } while (false)
