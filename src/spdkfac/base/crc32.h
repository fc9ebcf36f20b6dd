// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace spdkfac {

// CRC-32 of IEEE 802.3, as zlib and gzip have it. `before` is that of the bytes so far, 0 at first.
std::uint32_t crc32(std::uint32_t before, const void* data, std::size_t bytes);

}  // namespace spdkfac
