// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace spdkfac {
namespace {

constexpr std::size_t kMaxTypos = 2;

// Levenshtein distance; more than kMaxTypos when the lengths alone say so.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > kMaxTypos) {
    return kMaxTypos + 1;
  }
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(const std::string& misspelt, const std::set<std::string>& known) {
  std::string nearest;
  std::size_t least = kMaxTypos + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(misspelt, candidate);
    // When every letter differs it is no typo.
    if (distance < least && distance < std::max(misspelt.size(), candidate.size())) {
      nearest = candidate;
      least = distance;
    }
  }
  return nearest;
}

std::string advice_for_name(const std::string& misspelt, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(misspelt, {known.begin(), known.end()});
  return fmt::format("{}choose one of {}",
                     nearest.empty() ? "" : fmt::format("did you mean {}? ", nearest),
                     fmt::join(known, ", "));
}

}  // namespace spdkfac
