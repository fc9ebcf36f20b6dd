// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace spdkfac::data {

// The content of a file, decompressed if it is gzip data. Anything wrong with it is a ConfigError
// `path: what; remedy`: missing, damaged, incomplete, with more behind its end, or above 1 GiB.
std::vector<std::uint8_t> read_bytes(const std::filesystem::path& path, const std::string& remedy);

}  // namespace spdkfac::data
