// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/plan_options.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"

namespace spdkfac {
namespace {

// What is for methods or exchanges beyond this library's own training.
std::optional<std::string> conflict_in_method(const PlanOptions& options) {
  const bool replicated = options.placement == PlacementKind::kReplicated;
  const bool local = options.factor_reduce == FactorReduce::kLocal;
  const bool kfac = options.method == Method::kKfac;
  const std::string& method = name_of(method_names(), options.method);
  if (!kfac && options.factor_schedule != FactorSchedule::kBulk) {
    return fmt::format(
        "factor_schedule={} makes no sense with method={}, which starts from averaged gradients; "
        "choose factor_schedule=bulk",
        name_of(factor_schedule_names(), options.factor_schedule), method);
  }
  if (!kfac && !local) {
    return fmt::format(
        "factor_reduce={} makes no sense with method={}, whose matrices come from averaged "
        "gradients; choose factor_reduce=local",
        name_of(factor_reduce_names(), options.factor_reduce), method);
  }
  if (kfac && local &&
      (replicated || options.placement == PlacementKind::kBalanced || options.nct_below)) {
    return fmt::format(
        "factor_reduce=local makes no sense with {}: each rank would invert other factors; choose "
        "placement=sequential, lpt or blocks, without nct_below",
        options.nct_below
            ? fmt::format("nct_below={}", *options.nct_below)
            : fmt::format("placement={}", name_of(placement_names(), options.placement)));
  }
  if (!kfac && keeps_basis(options.solver)) {
    return fmt::format("solver={} makes no sense with method={}; drop one of them",
                       name_of(solver_names(), options.solver), method);
  }
  if (!options.gradient_workers) return std::nullopt;
  const double share = *options.gradient_workers;
  if (!(share >= 0 && share <= 1)) {
    return fmt::format("gradient_workers={} is out of range; use 0 (the owner alone) to 1", share);
  }
  if (replicated || options.exchange != Exchange::kInverse) {
    return fmt::format(
        "gradient_workers={} makes no sense with {}; drop one of them", share,
        replicated ? "placement=replicated"
                   : fmt::format("exchange={}", name_of(exchange_names(), options.exchange)));
  }
  return std::nullopt;
}

}  // namespace

WorkerGrid worker_grid(const PlanOptions& options, int world) {
  SPDKFAC_CHECK(world >= 1, "no ranks");
  constexpr double kRounding = 1e-6;  // of shares such as 1/3
  int workers = world;
  if (options.exchange == Exchange::kGather) {
    workers = 1;
  } else if (options.gradient_workers) {
    workers = std::max(1, static_cast<int>(*options.gradient_workers * world + kRounding));
    while (world % workers != 0) --workers;
  }
  return {workers, world / workers};
}

std::optional<std::string> conflict_in(const PlanOptions& options) {
  const bool replicated = options.placement == PlacementKind::kReplicated;
  if (!options.second_order() && !replicated) {
    return fmt::format(
        "placement={} makes no sense with factor_schedule=none; first-order training inverts "
        "nothing, drop the placement",
        name_of(placement_names(), options.placement));
  }
  if (!options.second_order() && keeps_basis(options.solver)) {
    return fmt::format(
        "solver={} makes no sense with factor_schedule=none; first-order training has no factors, "
        "drop the solver",
        name_of(solver_names(), options.solver));
  }
  if (replicated && options.factor_reduce == FactorReduce::kOwner) {
    return "factor_reduce=owner makes no sense with placement=replicated; "
           "choose placement=balanced, lpt or blocks, so that factors have owners";
  }
  if (replicated && options.exchange != Exchange::kInverse) {
    return fmt::format(
        "exchange={} makes no sense with placement=replicated; choose placement=balanced, lpt or "
        "blocks, so that layers have owners",
        name_of(exchange_names(), options.exchange));
  }
  if (options.nct_below && (replicated || options.placement == PlacementKind::kSequential)) {
    return fmt::format(
        "nct_below={} makes no sense with placement={}; choose placement=balanced, lpt or blocks, "
        "or drop nct_below",
        *options.nct_below, name_of(placement_names(), options.placement));
  }
  if (options.owners && options.placement != PlacementKind::kBlocks) {
    return fmt::format(
        "owners={} makes no sense with placement={}; choose placement=blocks, or drop owners",
        *options.owners, name_of(placement_names(), options.placement));
  }
  if (options.owners && *options.owners < 1) {
    return fmt::format("owners={} is out of range; use at least 1", *options.owners);
  }
  if (options.balance_by != BalanceBy::kDimension &&
      options.placement != PlacementKind::kBalanced) {
    return fmt::format(
        "balance_by={} makes no sense with placement={}; choose placement=balanced, or drop "
        "balance_by",
        name_of(balance_by_names(), options.balance_by),
        name_of(placement_names(), options.placement));
  }
  if (options.threshold_bytes < Bytes(1)) {
    return fmt::format("threshold_bytes={} is too small; use at least 1",
                       options.threshold_bytes.value());
  }
  return conflict_in_method(options);
}

void validate(const PlanOptions& options) {
  if (const auto conflict = conflict_in(options)) throw ConfigError("options: " + *conflict);
}

void require_trainable(const PlanOptions& options) {
  std::string what;
  if (options.method != Method::kKfac) {
    what = "method=" + name_of(method_names(), options.method);
  } else if (options.factor_reduce == FactorReduce::kLocal) {
    what = "factor_reduce=local";
  } else if (options.gradient_workers) {
    what = fmt::format("gradient_workers={}", *options.gradient_workers);
  } else if (options.exchange == Exchange::kGather) {
    what = "exchange=gather";
  } else {
    return;
  }
  throw ConfigError(
      fmt::format("options: algorithm {} has {}, which is for plans and forecasts only; train with "
                  "an algorithm of this library, such as spd-kfac, owner-blocks or auto",
                  options.algorithm, what));
}

const std::vector<std::string>& factor_schedule_names() {
  static const std::vector<std::string> names = {"none", "bulk", "naive", "pipelined"};
  return names;
}
const std::vector<std::string>& fusion_names() {
  static const std::vector<std::string> names = {"none", "bucket", "threshold", "greedy",
                                                 "optimal"};
  return names;
}
const std::vector<std::string>& placement_names() {
  static const std::vector<std::string> names = {"replicated", "sequential", "balanced", "lpt",
                                                 "blocks"};
  return names;
}
const std::vector<std::string>& balance_by_names() {
  static const std::vector<std::string> names = {"dimension", "square", "time"};
  return names;
}
const std::vector<std::string>& factor_reduce_names() {
  static const std::vector<std::string> names = {"all_reduce", "owner", "local"};
  return names;
}
const std::vector<std::string>& exchange_names() {
  static const std::vector<std::string> names = {"inverse", "gradient", "cheapest", "gather"};
  return names;
}
const std::vector<std::string>& method_names() {
  static const std::vector<std::string> names = {"kfac", "shampoo", "soap", "muon"};
  return names;
}

}  // namespace spdkfac
