// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

// `all_reduce 'factors 3' of 1000 elements on rank 1 of 4`, for messages.
std::string place_of(const Request& request, int rank, int size);

// What must be the same on all ranks that take part in an operation. It has a fixed size, so it can
// be sent as bytes; longer names are cut.
struct Signature {
  Operation operation = Operation::kBarrier;
  std::int32_t type = 0;
  std::int32_t root = 0;
  std::int64_t elements = 0;
  std::array<char, 64> what{};

  explicit Signature(const Request& request);

  bool operator==(const Signature&) const = default;
  std::string text() const;  // `broadcast 'inverse 3' of 1000 float elements with root 1`
};

// One rank's call of a collective.
struct RankCall {
  int rank = 0;
  const Signature& signature;
};
// The message for two ranks that called different collectives; `backend` is its first word.
std::string different_calls(const std::string& backend, int size, const RankCall& one,
                            const RankCall& other);

}  // namespace spdkfac::comm
