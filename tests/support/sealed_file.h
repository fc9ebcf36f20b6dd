// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "spdkfac/base/crc32.h"
#include "spdkfac/base/tensor_file.h"

namespace spdkfac::support {

// A tensor file of any header and elements, with the right length and, if it has a place for it,
// the right checksum: what a wrong program may write.
inline std::string sealed_file(std::string header, const std::string& elements) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  if (!header.starts_with(kChecksumPrefix) ||
      header.size() < kChecksumPrefix.size() + kChecksumDigits) {
    return file + header + elements;
  }
  header.replace(kChecksumPrefix.size(), kChecksumDigits, kChecksumDigits, '0');
  file += header + elements;
  file.replace(8 + kChecksumPrefix.size(), kChecksumDigits,
               fmt::format("{:08x}", crc32(0, file.data(), file.size())));
  return file;
}

}  // namespace spdkfac::support
