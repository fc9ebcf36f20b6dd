// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/shape.h"

#include <charconv>

#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac::cli {
namespace {

constexpr std::int64_t kMaxSide = 65536;

}  // namespace

std::vector<std::int64_t> parse_shape(const std::string& flag, const std::string& text) {
  std::vector<std::int64_t> shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (shape.size() < 3) {
    std::int64_t side = 0;
    const auto [next, problem] = std::from_chars(at, end, side);
    if (problem != std::errc() || side < 1 || side > kMaxSide) break;
    shape.push_back(side);
    at = next;
    if (at == end || *at != 'x') break;
    ++at;
  }
  if (shape.size() != 3 || at != end) {
    throw ConfigError(
        fmt::format("flags: {} {}: expected channels x height x width, each from 1 to {}; for "
                    "example 3x224x224",
                    flag, text, kMaxSide));
  }
  return shape;
}

}  // namespace spdkfac::cli
