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
  const Fact fact{.name = "", .value = value};
  require_same(communicator, what, std::span(&fact, 1));
}

void require_same(Communicator& communicator, const std::string& what,
                  std::span<const Fact> facts) {
  const auto count = static_cast<std::int64_t>(facts.size());
  at::Tensor mine = at::empty({count}, at::kLong);
  std::int64_t* const hashes = mine.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < facts.size(); ++i) {
    hashes[i] = static_cast<std::int64_t>(fnv1a(facts[i].value));
  }
  at::Tensor all = at::empty({communicator.size(), count}, at::kLong);
  communicator.all_gather_async(mine, all, "agreement on " + what).wait();
  const at::Tensor differs = all.ne(all[0]);
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 1; rank < communicator.size(); ++rank) {
    if (differs[rank].any().item<bool>()) ranks.push_back(rank);
  }
  if (ranks.empty()) return;
  std::string values;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    if (!differs.select(1, static_cast<std::int64_t>(i)).any().item<bool>()) continue;
    const auto& [name, value] = facts[i];
    values += fmt::format("{}{}{}{}", values.empty() ? "" : ", ", name, name.empty() ? "" : "=",
                          shortened(value));
  }
  throw ConfigError(fmt::format(
      "{}: the ranks disagree ({} of {} {} from rank 0; rank {} has {}); start all ranks with the "
      "same options and files",
      what, listed(ranks), communicator.size(), ranks.size() == 1 ? "differs" : "differ",
      communicator.rank(), values));
}

void require_all(Communicator& communicator, const std::string& what,
                 const std::exception_ptr& failure) {
  const at::Tensor mine = at::full({1}, failure ? 1 : 0, at::kLong);
  at::Tensor all = at::empty({communicator.size(), 1}, at::kLong);
  try {
    communicator.all_gather_async(mine, all, "failures of " + what).wait();
  } catch (const Error&) {
    if (!failure) throw;
  }
  if (failure) std::rethrow_exception(failure);
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < communicator.size(); ++rank) {
    if (all[rank].item<std::int64_t>() != 0) ranks.push_back(rank);
  }
  if (ranks.empty()) return;
  throw ConfigError(fmt::format(
      "{}: {} of {} failed, so nothing was changed here; the error of {} says why", what,
      listed(ranks), communicator.size(), ranks.size() == 1 ? "that rank" : "those ranks"));
}

}  // namespace spdkfac::comm
