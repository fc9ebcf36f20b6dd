// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace spdkfac::bench {

// Hears how far a measurement is, on the first rank only. Either function may be empty.
struct ProgressListener {
  std::function<void(const std::string& what, std::size_t steps)> begin;
  std::function<void()> advance;
};

}  // namespace spdkfac::bench
