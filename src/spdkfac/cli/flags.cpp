// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/flags.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/plan/layer_spec.h"

namespace spdkfac::cli {
namespace {

constexpr std::int64_t kMaxSide = 65536;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 50;

template <class Enum>
void override_choice(const std::optional<std::string>& word, const std::vector<std::string>& names,
                     Enum& field) {
  if (!word) return;
  field = static_cast<Enum>(std::find(names.begin(), names.end(), *word) - names.begin());
}

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

void PlanFlags::add_to(CLI::App& verb, const std::string& group) {
  const auto choice = [&](const char* flag, std::optional<std::string>& field,
                          const std::vector<std::string>& names, const char* help) {
    verb.add_option(flag, field, help)
        ->check(CLI::IsMember(names))
        ->type_name("WORD")
        ->group(group);
  };
  choice("--factor-schedule", factor_schedule_, factor_schedule_names(), "When factors are sent");
  choice("--fusion", fusion_, fusion_names(), "Which tensors share a message");
  verb.add_option("--threshold-bytes", threshold_bytes_,
                  "Size limit of bucket and threshold fusion")
      ->check(CLI::Range(std::int64_t{1}, kMaxSize))
      ->type_name("BYTES")
      ->group(group);
  choice("--placement", placement_, placement_names(), "Who inverts");
  choice("--balance-by", balance_by_, balance_by_names(), "What balanced placement balances");
  choice("--factor-reduce", factor_reduce_, factor_reduce_names(),
         "Who receives the summed factors");
  choice("--exchange", exchange_, exchange_names(), "What owners send");
  verb.add_option("--replicate-below", nct_below_, "Invert smaller factors on every rank")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}))
      ->type_name("DIM")
      ->group(group);
  verb.add_option("--owners", owners_, "Largest number of owners for blocks placement")
      ->check(CLI::Range(1, kMaxWorld))
      ->type_name("N")
      ->group(group);
}

bool PlanFlags::any() const {
  return factor_schedule_ || fusion_ || threshold_bytes_ || placement_ || balance_by_ ||
         factor_reduce_ || exchange_ || nct_below_ || owners_;
}

PlanOptions PlanFlags::options(const std::string& algorithm) const {
  PlanOptions options = preset(algorithm);
  const bool chosen_by_auto = algorithm == kAutoAlgorithm;
  const PlanOptions untouched = options;
  override_choice(factor_schedule_, factor_schedule_names(), options.factor_schedule);
  override_choice(fusion_, fusion_names(), options.fusion);
  if (threshold_bytes_) options.threshold_bytes = Bytes(*threshold_bytes_);
  override_choice(placement_, placement_names(), options.placement);
  override_choice(balance_by_, balance_by_names(), options.balance_by);
  override_choice(factor_reduce_, factor_reduce_names(), options.factor_reduce);
  override_choice(exchange_, exchange_names(), options.exchange);
  if (nct_below_) options.nct_below = nct_below_;
  if (owners_) options.owners = owners_;
  if (chosen_by_auto && any()) {
    throw ConfigError(
        "flags: algorithm=auto chooses the variants itself; remove the other variant flags, or "
        "name the algorithm that they modify");
  }
  if (!untouched.second_order() && options.second_order()) {
    throw ConfigError(
        fmt::format("flags: algorithm={} has no factors to schedule as {}; choose a K-FAC "
                    "algorithm, or remove --factor-schedule",
                    algorithm, *factor_schedule_));
  }
  return options;
}

}  // namespace spdkfac::cli
