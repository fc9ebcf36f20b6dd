// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/shuffle.h"

#include <limits>
#include <numeric>
#include <utility>

namespace spdkfac::data {

// The output function of SplitMix64 (Steele, Lea, Flood 2014), once for each argument.
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const auto scramble = [](std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  };
  return scramble(scramble(a) ^ b);
}

std::uint64_t draw_below(std::mt19937_64& engine, std::uint64_t bound) {
  // Above the last multiple of the bound the remainders would not be equally likely.
  const std::uint64_t limit = std::numeric_limits<std::uint64_t>::max() / bound * bound;
  std::uint64_t value = engine();
  while (value >= limit) value = engine();
  return value % bound;
}

std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::mt19937_64 engine(mix(seed, static_cast<std::uint64_t>(epoch)));
  for (std::size_t i = order.size(); i > 1; --i) {  // Fisher and Yates
    std::swap(order[i - 1], order[draw_below(engine, i)]);
  }
  return order;
}

}  // namespace spdkfac::data
