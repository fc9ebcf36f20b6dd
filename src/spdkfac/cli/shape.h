// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spdkfac::cli {

// `3x224x224` as channels, height, width; anything else is a ConfigError that names the flag.
std::vector<std::int64_t> parse_shape(const std::string& flag, const std::string& text);

}  // namespace spdkfac::cli
