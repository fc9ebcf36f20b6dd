// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <gmock/gmock.h>

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

// Expects a ConfigError whose message contains `part`.
template <class Call>
void expect_config_error(Call call, const std::string& part) {
  EXPECT_THAT(config_error(call), testing::HasSubstr(part));
}

}  // namespace spdkfac::support
