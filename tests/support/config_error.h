// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/base/error.h"

namespace spdkfac::support {

// The message of the ConfigError that `call` throws.
template <class Call>
std::string config_error(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace spdkfac::support
