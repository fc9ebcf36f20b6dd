// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace spdkfac {

struct CommOptions {
  // How long an operation may take before the ranks that wait for it fail.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // MPI splits larger operations, because it counts elements in 32 bits; the same on all ranks.
  std::int64_t max_piece_elements = std::int64_t{1} << 30;
};

}  // namespace spdkfac
