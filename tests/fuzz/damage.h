// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "spdkfac/base/json.h"

// Damages a JSON text: its bytes and tokens, or its tree.
namespace spdkfac::fuzz {

// Put in place of other values; between blanks.
constexpr const char* kNumbers =
    "-1 0 1 2 3 64 1000 86400 1000000 1048576 1000000000000 1125899906842624 9223372036854775807 "
    "-9223372036854775808 18446744073709551615 0.1 0.5 -0.0 6e-4 1e-3 1e-9 1e5 1e12 1e15 1e18 "
    "1e24 1e308 -1e308 1e999 1e-300 1e-308 5e-324";
constexpr const char* kWords =
    "tiny conv A G CT NCT all_reduce reduce inverse gradient gradients trace mixed factor_a "
    "factor_g full factors none bulk naive pipelined owner replicated sequential balanced lpt "
    "blocks log linear exponential power cubic table spdkfac.plan/1 \\u0000 a\\nb \\u001b[2J "
    "\xC3\xA9";
constexpr const char* kOthers = "null true false [] {} [[]] NaN // \" \\ \xFF";

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t count) { return engine_() % count; }
  bool one_in(std::size_t count) { return below(count) == 0; }
  template <class List>
  const auto& pick(const List& list) {
    return list[below(list.size())];
  }

 private:
  std::mt19937_64 engine_;
};

inline std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

inline std::string odd_number(Random& random) {
  static const std::vector<std::string> numbers = split(kNumbers);
  return random.pick(numbers);
}

inline std::string odd_value(Random& random) {
  static const std::vector<std::string> words = split(kWords);
  static const std::vector<std::string> others = split(kOthers);
  const std::size_t kind = random.below(5);
  if (kind < 2) return odd_number(random);
  return kind < 4 ? fmt::format("\"{}\"", random.pick(words)) : random.pick(others);
}

inline void damage_text(std::string& text, Random& random) {
  const auto size_up_to = [&](std::size_t most) { return random.below(most + 1); };
  const std::size_t at = size_up_to(text.size());
  const std::size_t size = size_up_to(random.one_in(4) ? 200 : 8);
  const std::string piece = text.substr(size_up_to(text.size()), size_up_to(40));
  // The number, string or name around `at`.
  constexpr std::string_view kSeparators = " \n,:[]{}";
  const std::size_t begin = at == 0 ? 0 : text.find_last_of(kSeparators, at - 1) + 1;
  const std::size_t length = std::min(text.find_first_of(kSeparators, begin), text.size()) - begin;
  const std::size_t action = random.below(9);
  if (action == 0) text.erase(at, size);
  if (action == 1) text.insert(at, 1, static_cast<char>(random.below(256)));
  if (action == 2) text.insert(at, piece);
  if (action == 3) text.resize(at);
  if (action == 4) text.replace(at, size, piece);
  if (action == 5) text.insert(at, std::string(size_up_to(100), "[{\"1,"[random.below(5)]));
  if (action == 6) text.insert(begin, text.substr(begin, length) + ",");
  if (action >= 7) text.replace(begin, length, odd_value(random));
}

inline Json& random_node(Json& root, Random& random) {
  Json* node = &root;
  while (node->is_structured() && !node->empty() && (node == &root || !random.one_in(6))) {
    node = &*std::next(node->begin(), static_cast<std::ptrdiff_t>(random.below(node->size())));
  }
  return *node;
}

inline void damage_leaf(Json& leaf, const Json& other, Random& random) {
  const std::size_t action = random.below(8);
  if (leaf.is_number_integer() && action < 2) {
    const std::uint64_t step = action == 0 ? 1 : ~std::uint64_t{0};  // or one back
    leaf = static_cast<std::int64_t>(leaf.get<std::uint64_t>() + step);
  } else if (action < 7) {
    const bool number = leaf.is_number() && action < 6;
    leaf = Json::parse(number ? odd_number(random) : odd_value(random), nullptr,
                       /*allow_exceptions=*/false);
  } else {
    leaf = other;
  }
}

// Keeps the syntax right, so that the damage comes past the parser.
inline void damage_tree(Json& root, Random& random) {
  const Json copy = random_node(root, random);
  Json& node = random_node(root, random);
  if (!node.is_structured() || node.empty()) return damage_leaf(node, copy, random);
  const auto child = [&] {
    return std::next(node.begin(), static_cast<std::ptrdiff_t>(random.below(node.size())));
  };
  const std::size_t action = random.below(6);
  if (action == 0) node.erase(child());
  if (action == 1) std::swap(*child(), *child());
  if (action == 2) node = Json::array({node});
  if (action >= 3 && node.is_array()) node.push_back(action == 3 ? copy : Json(*child()));
  if (action >= 3 && node.is_object()) node[child().key() + (action == 3 ? "" : "x")] = copy;
}

// `text` with a few mistakes; some are parts of `donor`. Both are valid objects.
inline std::string damaged(const std::string& text, const std::string& donor, Random& random) {
  std::string result = text;
  if (!random.one_in(3)) {
    Json tree = Json::parse(text);
    if (random.one_in(3)) {
      const Json other = Json::parse(donor);
      const auto part =
          std::next(other.begin(), static_cast<std::ptrdiff_t>(random.below(other.size())));
      tree[part.key()] = part.value();
    }
    do damage_tree(tree, random);
    while (!tree.empty() && !random.one_in(2));
    result = tree.dump(random.one_in(2) ? 1 : -1, ' ', false, Json::error_handler_t::replace);
    if (!random.one_in(10)) return result;
  }
  do damage_text(result, random);
  while (!random.one_in(2));
  return result;
}

}  // namespace spdkfac::fuzz
