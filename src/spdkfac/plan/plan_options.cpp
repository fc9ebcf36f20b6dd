// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/plan_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/plan/layer_spec.h"

namespace spdkfac {
namespace {

constexpr std::int64_t kMaxInterval = 1'000'000;

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
  add("kfac", "KFAC", S::kBulk, F::kThreshold, P::kReplicated, "d-kfac on one worker");
  add("d-kfac", "D-KFAC", S::kBulk, F::kThreshold, P::kReplicated,
      "factors after the backward pass, every worker inverts everything");
  add("mpd-kfac", "MPD-KFAC", S::kBulk, F::kThreshold, P::kSequential,
      "as d-kfac, inverses dealt out in turn and broadcast");
  add("spd-kfac", "SPD-KFAC", S::kPipelined, F::kGreedy, P::kBalanced,
      "the paper: pipelined factors, greedy fusion, balanced inverses");
  add("pipe", "+Pipe-LBP", S::kPipelined, F::kGreedy, P::kReplicated, "ablation: pipelining only");
  add("lbp", "-Pipe+LBP", S::kBulk, F::kThreshold, P::kBalanced,
      "ablation: load-balanced inverses only");
  add("naive", "Naive", S::kNaive, F::kThreshold, P::kBalanced,
      "A leaves after the forward pass, G after the backward pass");
  add("lw-none", "LW w/o TF", S::kPipelined, F::kNone, P::kBalanced,
      "layer-wise, every factor its own message");
  add("lw-threshold", "LW w/ TTF", S::kPipelined, F::kThreshold, P::kBalanced,
      "layer-wise, fused up to a threshold");
  add("sp-otf", "SP w/ OTF", S::kPipelined, F::kGreedy, P::kBalanced,
      "the paper's fusion; the same as spd-kfac");
  add("optimal-fusion", "", S::kPipelined, F::kOptimal, P::kBalanced,
      "exact dynamic program over factors and gradients");
  add("owner-reduce", "", S::kPipelined, F::kGreedy, P::kBalanced,
      "factors reduced to the worker that inverts them")
      .factor_reduce = FactorReduce::kOwner;
  const auto owner_scheme = [](PlanOptions& options) {
    options.factor_reduce = FactorReduce::kOwner;
    options.exchange = Exchange::kGradient;
  };
  PlanOptions& spread = add("owner-precondition", "", S::kPipelined, F::kOptimal, P::kLpt,
                            "the owner preconditions its layers and sends gradients");
  owner_scheme(spread);
  PlanOptions& blocks = add("owner-blocks", "", S::kPipelined, F::kOptimal, P::kBlocks,
                            "as owner-precondition, owners of consecutive layers");
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

namespace {

// Tells `fail` what makes no sense.
template <class Fail>
void check_options(const PlanOptions& options, const Fail& fail) {
  const auto reject = [&fail](const std::string& both, const std::string& remedy) {
    fail(fmt::format("{}; {}", both, remedy));
  };
  const bool replicated = options.placement == PlacementKind::kReplicated;
  if (!options.second_order()) {
    if (!replicated) {
      reject(fmt::format("placement={} makes no sense with factor_schedule=none",
                         name_of(placement_names(), options.placement)),
             "first-order training inverts nothing, drop the placement");
    }
    if (options.factor_interval != 1 || options.inverse_interval != 1) {
      reject("factor_interval and inverse_interval make no sense with factor_schedule=none",
             "first-order training has no factors, drop the intervals");
    }
  }
  if (replicated && options.factor_reduce == FactorReduce::kOwner) {
    reject("factor_reduce=owner makes no sense with placement=replicated",
           "choose placement=balanced, lpt or blocks, so that factors have owners");
  }
  if (replicated && options.exchange != Exchange::kInverse) {
    reject(fmt::format("exchange={} makes no sense with placement=replicated",
                       name_of(exchange_names(), options.exchange)),
           "choose placement=balanced, lpt or blocks, so that layers have owners");
  }
  if (options.nct_below && (replicated || options.placement == PlacementKind::kSequential)) {
    reject(fmt::format("nct_below={} makes no sense with placement={}", *options.nct_below,
                       name_of(placement_names(), options.placement)),
           "choose placement=balanced, lpt or blocks, or drop nct_below");
  }
  if (options.owners && options.placement != PlacementKind::kBlocks) {
    reject(fmt::format("owners={} makes no sense with placement={}", *options.owners,
                       name_of(placement_names(), options.placement)),
           "choose placement=blocks, or drop owners");
  }
  if (options.owners && *options.owners < 1) {
    reject(fmt::format("owners={} is out of range", *options.owners), "use at least 1");
  }
  if (options.balance_by != BalanceBy::kDimension &&
      options.placement != PlacementKind::kBalanced) {
    reject(fmt::format("balance_by={} makes no sense with placement={}",
                       name_of(balance_by_names(), options.balance_by),
                       name_of(placement_names(), options.placement)),
           "choose placement=balanced, or drop balance_by");
  }
  if (options.threshold_bytes < Bytes(1)) {
    reject(fmt::format("threshold_bytes={} is too small", options.threshold_bytes.value()),
           "use at least 1");
  }
  for (const auto& [name, interval] : {std::pair{"factor_interval", options.factor_interval},
                                       std::pair{"inverse_interval", options.inverse_interval}}) {
    if (interval < 1 || interval > kMaxInterval) {
      reject(fmt::format("{}={} is out of range", name, interval),
             fmt::format("use 1 to {}", kMaxInterval));
    }
  }
  if (options.inverse_interval % options.factor_interval != 0) {
    reject(fmt::format("inverse_interval={} is not a multiple of factor_interval={}",
                       options.inverse_interval, options.factor_interval),
           "inverses are refreshed from fresh factors, choose a multiple");
  }
}

}  // namespace

void validate(const PlanOptions& options) {
  check_options(options, [](const std::string& message) {
    throw ConfigError(fmt::format("options: {}", message));
  });
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

Json to_json(const PlanOptions& options) {
  return {{"factor_schedule", name_of(factor_schedule_names(), options.factor_schedule)},
          {"fusion", name_of(fusion_names(), options.fusion)},
          {"threshold_bytes", options.threshold_bytes.value()},
          {"placement", name_of(placement_names(), options.placement)},
          {"balance_by", name_of(balance_by_names(), options.balance_by)},
          {"factor_reduce", name_of(factor_reduce_names(), options.factor_reduce)},
          {"exchange", name_of(exchange_names(), options.exchange)},
          {"nct_below", options.nct_below ? Json(*options.nct_below) : Json(nullptr)},
          {"owners", options.owners ? Json(*options.owners) : Json(nullptr)},
          {"factor_interval", options.factor_interval},
          {"inverse_interval", options.inverse_interval}};
}

PlanOptions parse_plan_options(const JsonValue& value, const std::string& algorithm) {
  JsonObject object(value);
  const auto choose = [&object]<class Enum>(const std::string& key,
                                            const std::vector<std::string>& names, Enum& field) {
    field = static_cast<Enum>(object.required(key).choice(names));
  };
  PlanOptions options;
  options.algorithm = algorithm;
  choose("factor_schedule", factor_schedule_names(), options.factor_schedule);
  choose("fusion", fusion_names(), options.fusion);
  options.threshold_bytes =
      Bytes(object.required("threshold_bytes").integer(1, std::int64_t{1} << 50));
  choose("placement", placement_names(), options.placement);
  choose("balance_by", balance_by_names(), options.balance_by);
  choose("factor_reduce", factor_reduce_names(), options.factor_reduce);
  choose("exchange", exchange_names(), options.exchange);
  const JsonValue nct_below = object.required("nct_below");
  if (!nct_below.is_null()) options.nct_below = nct_below.integer(0, 1'000'000'000);
  const JsonValue owners = object.required("owners");
  if (!owners.is_null()) options.owners = static_cast<int>(owners.integer(1, kMaxWorld));
  options.factor_interval = object.required("factor_interval").integer(1, kMaxInterval);
  options.inverse_interval = object.required("inverse_interval").integer(1, kMaxInterval);
  object.finish();
  check_options(options, [&value](const std::string& message) { value.fail(message); });
  return options;
}

}  // namespace spdkfac
