// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/idx_file.h"

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/data/file_bytes.h"

namespace spdkfac::data {
namespace {

namespace fs = std::filesystem;

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

}  // namespace

IdxFile read_idx(const fs::path& plain, int dimensions, const std::string& remedy) {
  const fs::path gzipped = plain.string() + ".gz";
  std::error_code ignored;
  const fs::path path =
      fs::exists(plain, ignored) && !fs::exists(gzipped, ignored) ? plain : gzipped;
  std::vector<std::uint8_t> bytes = read_bytes(path, remedy);
  const auto fail = [&](const std::string& what) {
    throw ConfigError(fmt::format("{}: {}; {}", path.string(), what, remedy));
  };
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(dimensions);
  if (bytes.size() < header) {
    fail(fmt::format("is too short for an IDX file ({} bytes of content)", bytes.size()));
  }
  constexpr std::uint32_t kUnsignedBytes = 0x0800;
  const std::uint32_t expected = kUnsignedBytes | static_cast<std::uint32_t>(dimensions);
  if (big_endian(bytes.data()) != expected) {
    fail(
        fmt::format("is not an IDX file of bytes in {} dimensions (starts with {:08x}, not {:08x})",
                    dimensions, big_endian(bytes.data()), expected));
  }
  IdxFile file;
  double content = 1;  // may exceed 64 bits
  for (std::size_t at = 4; at < header; at += 4) {
    file.sizes.push_back(big_endian(bytes.data() + at));
    content *= static_cast<double>(file.sizes.back());
  }
  if (content != static_cast<double>(bytes.size() - header)) {
    fail(fmt::format("has {} bytes after its header, which announces {:.0f}", bytes.size() - header,
                     content));
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  file.values = std::move(bytes);
  return file;
}

}  // namespace spdkfac::data
