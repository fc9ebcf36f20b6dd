// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace spdkfac::data {

// An array of bytes as the IDX format of the MNIST family stores it.
struct IdxFile {
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> values;
};

// Reads `path`, or the same name with .gz, which goes first; the file must hold bytes in
// `dimensions` dimensions and nothing else. Errors are ConfigErrors that end with `remedy`.
IdxFile read_idx(const std::filesystem::path& path, int dimensions, const std::string& remedy);

}  // namespace spdkfac::data
