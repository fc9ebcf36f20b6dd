// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/plan_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/plan/layer_spec.h"

namespace spdkfac {
namespace {

PlanOptions make(const std::string& name, FactorSchedule schedule, Fusion fusion,
                 PlacementKind placement) {
  PlanOptions options;
  options.algorithm = name;
  options.factor_schedule = schedule;
  options.fusion = fusion;
  options.placement = placement;
  return options;
}

std::vector<AlgorithmInfo> build_algorithms() {
  using S = FactorSchedule;
  using F = Fusion;
  using P = PlacementKind;
  std::vector<AlgorithmInfo> list;
  const auto add = [&list](const std::string& name, const std::string& paper_name, S schedule,
                           F fusion, P placement, const std::string& summary) -> PlanOptions& {
    list.push_back({name, paper_name, summary, make(name, schedule, fusion, placement)});
    return list.back().options;
  };
  add("sgd", "S-SGD", S::kNone, F::kThreshold, P::kReplicated,
      "gradients only, sent while the backward pass runs");
  add("kfac", "KFAC", S::kBulk, F::kThreshold, P::kReplicated, "d-kfac on one rank");
  add("d-kfac", "D-KFAC", S::kBulk, F::kThreshold, P::kReplicated,
      "factors after the backward pass, every rank inverts everything");
  add("mpd-kfac", "MPD-KFAC", S::kBulk, F::kThreshold, P::kSequential,
      "like d-kfac; inverses are dealt out in turn and broadcast");
  add("spd-kfac", "SPD-KFAC", S::kPipelined, F::kGreedy, P::kBalanced,
      "the paper: pipelined factors, greedy fusion, balanced inverses");
  add("pipe", "+Pipe-LBP", S::kPipelined, F::kGreedy, P::kReplicated, "ablation: pipelining only");
  add("lbp", "-Pipe+LBP", S::kBulk, F::kThreshold, P::kBalanced,
      "ablation: load-balanced inverses only");
  add("naive", "Naive", S::kNaive, F::kThreshold, P::kBalanced,
      "A leaves after the forward pass, G after the backward pass");
  add("lw-none", "LW w/o TF", S::kPipelined, F::kNone, P::kBalanced,
      "layer by layer; every factor is a message");
  add("lw-threshold", "LW w/ TTF", S::kPipelined, F::kThreshold, P::kBalanced,
      "layer by layer; factors are fused up to a threshold");
  add("sp-otf", "SP w/ OTF", S::kPipelined, F::kGreedy, P::kBalanced,
      "the paper's fusion; the same as spd-kfac");
  add("optimal-fusion", "", S::kPipelined, F::kOptimal, P::kBalanced,
      "exact dynamic program over factors and gradients");
  add("owner-reduce", "", S::kPipelined, F::kGreedy, P::kBalanced,
      "factors reduced to the rank that inverts them")
      .factor_reduce = FactorReduce::kOwner;
  const auto owner_scheme = [](PlanOptions& options) {
    options.factor_reduce = FactorReduce::kOwner;
    options.exchange = Exchange::kGradient;
  };
  PlanOptions& spread = add("owner-precondition", "", S::kPipelined, F::kOptimal, P::kLpt,
                            "the owner preconditions its layers and sends gradients");
  owner_scheme(spread);
  PlanOptions& blocks = add("owner-blocks", "", S::kPipelined, F::kOptimal, P::kBlocks,
                            "like owner-precondition; an owner has consecutive layers");
  owner_scheme(blocks);
  return list;
}

}  // namespace

const std::vector<AlgorithmInfo>& named_algorithms() {
  static const std::vector<AlgorithmInfo> list = build_algorithms();
  return list;
}

PlanOptions preset(const std::string& algorithm) {
  if (algorithm == kAutoAlgorithm) {
    PlanOptions options;
    options.algorithm = kAutoAlgorithm;
    return options;
  }
  std::vector<std::string> names = {kAutoAlgorithm};
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (info.name == algorithm) return info.options;
    names.push_back(info.name);
  }
  throw ConfigError(fmt::format("algorithm: unknown name \"{}\"; choose one of {}", algorithm,
                                fmt::join(names, ", ")));
}

std::optional<std::string> conflict_in(const PlanOptions& options) {
  const bool replicated = options.placement == PlacementKind::kReplicated;
  if (!options.second_order() && !replicated) {
    return fmt::format(
        "placement={} makes no sense with factor_schedule=none; first-order training inverts "
        "nothing, drop the placement",
        name_of(placement_names(), options.placement));
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
  return std::nullopt;
}

void validate(const PlanOptions& options) {
  if (const auto conflict = conflict_in(options)) throw ConfigError("options: " + *conflict);
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
  static const std::vector<std::string> names = {"all_reduce", "owner"};
  return names;
}
const std::vector<std::string>& exchange_names() {
  static const std::vector<std::string> names = {"inverse", "gradient", "cheapest"};
  return names;
}

}  // namespace spdkfac
