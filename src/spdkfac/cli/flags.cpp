// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/flags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

std::string expected(const std::string& what, const std::string& text) {
  return fmt::format("expected {} (got {})", what, text.empty() ? "nothing" : text);
}

// 64MB: a number and a unit of 1000 or, with i, 1024 bytes.
std::optional<std::int64_t> parse_size(const std::string& text, std::int64_t max) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const auto value = whole_number<std::int64_t>(std::string_view(text).substr(0, digits));
  if (!value) return std::nullopt;
  std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  const std::vector<std::string> decimal = {"b", "kb", "mb", "gb", "tb"};
  const std::vector<std::string> binary = {"", "kib", "mib", "gib", "tib"};
  for (const auto& [units, step] : {std::pair(&decimal, 1000), std::pair(&binary, 1024)}) {
    const auto found = std::find(units->begin(), units->end(), unit);
    if (found == units->end()) continue;
    std::int64_t bytes = *value;
    for (auto power = found - units->begin(); power > 0 && bytes <= max; --power) bytes *= step;
    return bytes >= 1 && bytes <= max ? std::optional(bytes) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

CLI::Validator count(std::int64_t min, std::int64_t max) {
  const std::string range = max == std::numeric_limits<std::int64_t>::max()
                                ? fmt::format("at least {}", min)
                                : fmt::format("from {} to {}", min, max);
  return CLI::Validator(
      [=](const std::string& text) {
        const auto value = whole_number<std::int64_t>(text);
        if (value && *value >= min && *value <= max) return std::string();
        return expected("an integer " + (range.starts_with("at") ? "of " + range : range), text);
      },
      range);
}

CLI::Validator number(double min, double max) {
  const std::string range = fmt::format("from {} to {}", min, max);
  return CLI::Validator(
      [=](const std::string& text) {
        const auto value = whole_number<double>(text);
        // A NaN is in no range.
        if (value && *value >= min && *value <= max) return std::string();
        return expected("a number " + range, text);
      },
      range);
}

CLI::Validator one_of(const std::vector<std::string>& names) {
  const std::string list = fmt::format("one of {}", fmt::join(names, ", "));
  return CLI::Validator(
      [=](const std::string& text) {
        if (std::find(names.begin(), names.end(), text) != names.end()) return std::string();
        return expected(list, text);
      },
      list);
}

CLI::Validator size_in_bytes(std::int64_t max) {
  return CLI::Validator(
      [=](std::string& text) {
        if (const auto bytes = parse_size(text, max)) {
          text = std::to_string(*bytes);
          return std::string();
        }
        return expected(
            fmt::format("a size from 1 byte to {} TiB, such as 64MiB, 25MB or 1048576", max >> 40),
            text);
      },
      "for example 64MiB, 25MB or 1048576");
}

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

std::string conflict_text(const std::string& first, const std::string& second) {
  return fmt::format("flags: {} and {} cannot be combined; remove one of them", first, second);
}

void PlanFlags::add_to(CLI::App& verb, const std::string& group) {
  const auto choice = [&](const char* flag, std::optional<std::string>& field,
                          const std::vector<std::string>& names, const char* help) {
    verb.add_option(flag, field, help)->check(one_of(names))->type_name("WORD")->group(group);
  };
  choice("--factor-schedule", factor_schedule_, factor_schedule_names(), "When factors are sent");
  choice("--fusion", fusion_, fusion_names(), "Which tensors share a message");
  verb.add_option("--threshold-bytes", threshold_bytes_,
                  "Size limit of messages, for gradients also with other fusion (default 64MiB)")
      ->transform(size_in_bytes(kMaxSize))
      ->type_name("SIZE")
      ->group(group);
  choice("--placement", placement_, placement_names(), "Who inverts");
  choice("--balance-by", balance_by_, balance_by_names(), "What balanced placement balances");
  choice("--factor-reduce", factor_reduce_, factor_reduce_names(),
         "Who receives the summed factors");
  choice("--exchange", exchange_, exchange_names(), "What owners send");
  verb.add_option("--replicate-below", nct_below_, "Invert smaller factors on every rank")
      ->check(count(0, 1'000'000'000))
      ->type_name("DIM")
      ->group(group);
  verb.add_option("--owners", owners_, "Largest number of owners for blocks placement")
      ->check(count(1, kMaxWorld))
      ->type_name("N")
      ->group(group);
  choice("--method", method_, method_names(), "What layers are preconditioned with, in forecasts");
  verb.add_option("--gradient-workers", gradient_workers_,
                  "Share of the ranks that precondition a layer, as in KAISA, in forecasts")
      ->check(number(0, 1))
      ->type_name("SHARE")
      ->group(group);
}

bool PlanFlags::any() const {
  return factor_schedule_ || fusion_ || threshold_bytes_ || placement_ || balance_by_ ||
         factor_reduce_ || exchange_ || nct_below_ || owners_ || method_ || gradient_workers_;
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
  override_choice(method_, method_names(), options.method);
  if (gradient_workers_) options.gradient_workers = gradient_workers_;
  if (chosen_by_auto && any()) {
    throw ConfigError(
        "flags: algorithm=auto chooses the variants itself; remove the other variant flags, or "
        "name the algorithm that they modify");
  }
  if (threshold_bytes_ && options.fusion == Fusion::kOptimal) {
    throw ConfigError(
        "flags: --threshold-bytes makes no sense with fusion=optimal, which has no limit; remove "
        "it, or choose another --fusion");
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
