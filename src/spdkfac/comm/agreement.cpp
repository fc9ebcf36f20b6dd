// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/agreement.h"

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/hash.h"

namespace spdkfac::comm {
namespace {

constexpr std::size_t kShownBytes = 200;
constexpr std::size_t kShownRanks = 8;

std::string shortened(const std::string& value) {
  if (value.size() <= kShownBytes) return value;
  return fmt::format("{}… ({} bytes)", value.substr(0, kShownBytes), value.size());
}

std::string listed(const std::vector<std::int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size() && i < kShownRanks; ++i) {
    text += fmt::format("{}{}", i == 0 ? " " : ", ", ranks[i]);
  }
  if (ranks.size() > kShownRanks) text += fmt::format(" and {} more", ranks.size() - kShownRanks);
  return text;
}

}  // namespace

void require_same(Communicator& communicator, const std::string& what, const std::string& value) {
  at::Tensor mine = at::full({1}, static_cast<std::int64_t>(fnv1a(value)), at::kLong);
  at::Tensor all = at::empty({communicator.size(), 1}, at::kLong);
  communicator.all_gather_async(mine, all, "agreement on " + what).wait();
  const auto* hashes = all.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> different;
  for (std::int64_t rank = 1; rank < communicator.size(); ++rank) {
    if (hashes[rank] != hashes[0]) different.push_back(rank);
  }
  if (different.empty()) return;
  throw ConfigError(fmt::format(
      "{}: the ranks disagree ({} of {} {} from rank 0; rank {} has {}); start all ranks with the "
      "same options and files",
      what, listed(different), communicator.size(), different.size() == 1 ? "differs" : "differ",
      communicator.rank(), shortened(value)));
}

}  // namespace spdkfac::comm
