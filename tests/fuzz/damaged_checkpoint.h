// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "fuzz/damage.h"
#include "support/sealed_file.h"

namespace spdkfac::fuzz {

// The parts of a tensor file that is whole.
struct TensorFileParts {
  std::string header;
  std::string elements;
};

inline TensorFileParts parts_of(const std::string& file) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  return {file.substr(sizeof(length), length), file.substr(sizeof(length) + length)};
}

// Whether size and checksum are those of a tensor file, whatever its header says.
inline bool is_whole(const std::string& file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof(length)) return false;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > file.size() - sizeof(length)) return false;
  const TensorFileParts parts = parts_of(file);
  return parts.header.size() >= kChecksumPrefix.size() + kChecksumDigits &&
         parts.header.starts_with(kChecksumPrefix) &&
         support::sealed_file(parts.header, parts.elements) == file;
}

// A checkpoint with a mistake: cut or with a flipped bit, as disks do; or with the right checksum,
// as a wrong program writes it, where some parts are those of `foreign`, another checkpoint.
inline std::string damaged_checkpoint(const std::string& good, const std::string& foreign,
                                      Random& random) {
  if (random.one_in(4)) {
    std::string bad = good;
    if (random.one_in(2)) {
      bad.resize(random.below(good.size()));
    } else {
      bad[random.below(good.size())] ^= static_cast<char>(1 << random.below(8));
    }
    return bad;
  }
  const TensorFileParts mine = parts_of(good);
  const TensorFileParts other = parts_of(foreign);
  if (random.one_in(10)) return support::sealed_file(mine.header, other.elements);
  if (random.one_in(10)) return support::sealed_file(other.header, mine.elements);
  return support::sealed_file(damaged(mine.header, other.header, random), mine.elements);
}

}  // namespace spdkfac::fuzz
