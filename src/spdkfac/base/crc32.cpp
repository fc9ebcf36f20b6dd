// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/crc32.h"

#include <array>

namespace spdkfac {
namespace {

constexpr std::uint32_t kPolynomial = 0xEDB88320;  // reversed
constexpr std::size_t kSlices = 8;                 // bytes at a time

using CrcTables = std::array<std::array<std::uint32_t, 256>, kSlices>;

// Table s: what a byte contributes when s more bytes follow it.
constexpr CrcTables make_tables() {
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = value;
  }
  for (std::size_t slice = 1; slice < kSlices; ++slice) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t value = tables[slice - 1][byte];
      tables[slice][byte] = (value >> 8) ^ tables[0][value & 0xFF];
    }
  }
  return tables;
}

constexpr CrcTables kTables = make_tables();

}  // namespace

std::uint32_t crc32(std::uint32_t before, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~before;
  for (; bytes >= kSlices; bytes -= kSlices, at += kSlices) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < kSlices; ++i) {
      const std::size_t byte = at[i] ^ (i < 4 ? (crc >> (8 * i)) & 0xFF : 0);
      next ^= kTables[kSlices - 1 - i][byte];
    }
    crc = next;
  }
  for (; bytes > 0; --bytes, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

}  // namespace spdkfac
