// SPDX-License-Identifier: Apache-2.0
#include "stress/plan_case.h"

#include <iterator>

#include <fmt/format.h>

#include "sim/random_cases.h"
#include "spdkfac/runtime/presets.h"

namespace spdkfac::stress {
namespace {

using support::Random;

template <class List>
const auto& pick(Random& random, const List& list) {
  const auto last = static_cast<std::int64_t>(std::size(list)) - 1;
  return list[static_cast<std::size_t>(random.integer(0, last))];
}

template <class Enum>
Enum any_of(Random& random, const std::vector<std::string>& names) {
  return static_cast<Enum>(random.integer(0, static_cast<std::int64_t>(names.size()) - 1));
}

// The rest is for forecasts.
constexpr FactorReduce kTrainedReduces[] = {FactorReduce::kAllReduce, FactorReduce::kOwner};
constexpr Exchange kTrainedExchanges[] = {Exchange::kInverse, Exchange::kGradient,
                                          Exchange::kCheapest};

// A named algorithm, `auto`, or any values of all fields: some combinations make no sense.
PlanOptions random_options(Random& random) {
  const std::int64_t choice = random.integer(0, 9);
  if (choice == 0) return preset(kAutoAlgorithm);
  PlanOptions options = pick(random, named_algorithms()).options;
  if (choice < 4) return options;
  options.factor_schedule = any_of<FactorSchedule>(random, factor_schedule_names());
  if (!options.second_order() && choice < 9) options.factor_schedule = FactorSchedule::kPipelined;
  options.fusion = any_of<Fusion>(random, fusion_names());
  options.threshold_bytes = Bytes(random.integer(1, 4000));
  options.placement = any_of<PlacementKind>(random, placement_names());
  options.factor_reduce = pick(random, kTrainedReduces);
  options.exchange = pick(random, kTrainedExchanges);
  if (options.placement == PlacementKind::kBalanced || choice == 9) {
    options.balance_by = any_of<BalanceBy>(random, balance_by_names());
  } else {
    options.balance_by = BalanceBy::kDimension;
  }
  if (random.integer(0, 2) == 0) options.nct_below = random.integer(0, 20);
  if (options.placement == PlacementKind::kBlocks && random.coin()) {
    options.owners = static_cast<int>(random.integer(1, 6));
  }
  // Mostly sensible ones.
  for (int attempt = 0; attempt < 20 && choice < 9 && conflict_in(options); ++attempt) {
    options.placement = any_of<PlacementKind>(random, placement_names());
    options.factor_reduce = pick(random, kTrainedReduces);
    options.exchange = pick(random, kTrainedExchanges);
    if (random.coin()) options.nct_below.reset();
    if (options.placement != PlacementKind::kBlocks) options.owners.reset();
    if (options.placement != PlacementKind::kBalanced) options.balance_by = BalanceBy::kDimension;
  }
  return options;
}

KfacOptions random_kfac(Random& random) {
  KfacOptions kfac;
  kfac.damping = pick(random, std::vector<double>{0.03, 0.1, 0.5});
  kfac.damping_mode = any_of<Damping>(random, damping_names());
  kfac.running_average = pick(random, std::vector<double>{0, 0.5, 0.95});
  kfac.identity_start = random.integer(0, 3) == 0;
  kfac.convention = any_of<Convention>(random, convention_names());
  kfac.kl_clip = pick(random, std::vector<double>{0, 0.001, 0.1});
  kfac.factor_interval = random.coin() ? 1 : random.integer(1, 3);
  kfac.inverse_interval = kfac.factor_interval * (random.coin() ? 1 : random.integer(1, 3));
  if (random.integer(0, 9) == 0) kfac.inverse_interval = random.integer(1, 4);
  kfac.interval =
      random.integer(0, 2) == 0 ? any_of<Refresh>(random, refresh_names()) : Refresh::kFixed;
  kfac.spread_refreshes = kfac.interval != Refresh::kAdaptive && random.integer(0, 3) == 0;
  if (random.integer(0, 3) == 0) {
    kfac.max_dimension = random.integer(2, 40);
    kfac.large_factors = any_of<LargeFactors>(random, large_factors_names());
  }
  kfac.trace = random.integer(0, 4) == 0;
  if (random.integer(0, 2) == 0) {
    set_solver(kfac, any_of<Solver>(random, solver_names()));
  }
  if (kfac.solver != Solver::kAdam && random.integer(0, 3) == 0) {
    kfac.graft = any_of<Graft>(random, graft_names());
    if (kfac.graft != Graft::kNone) kfac.kl_clip = 0;
  }
  kfac.graft_adam.epsilon = 1e-3;  // far above rounding, which Adam would divide by itself
  return kfac;
}

CostModel random_costs(Random& random, int world) {
  CostModel costs = support::random_cluster(random, world);
  // Costs of microseconds, as layers of this size have.
  if (random.coin()) {
    const double alpha = random.real(1e-7, 1e-4);
    costs.all_reduce = costs.reduce = costs.broadcast =
        CollectiveCost(Seconds(alpha), Seconds(random.real(0, 1e-7)));
    costs.inverse = CubicInverse{random.real(0, 1e-4), 0, 0, random.real(0, 1e-6)};
    costs.compute = ComputeRates{FlopsPerSecond(1e9), FlopsPerSecond(1e9), FlopsPerSecond(1e9)};
  }
  return costs;
}

template <class Optional>
std::string text_of_optional(const char* name, const Optional& value) {
  return value ? fmt::format(" {}={}", name, *value) : "";
}

}  // namespace

PlanCase random_plan_case(std::uint32_t seed) {
  Random random(seed);
  PlanCase one;
  one.seed = seed;
  one.net = random_net(random);
  one.world = static_cast<int>(random.integer(2, 6));
  one.examples = random.integer(2, 5);
  one.passes = random.integer(0, 3) == 0 ? 2 : 1;
  one.steps = random.integer(1, 7);
  one.kfac = random_kfac(random);
  one.plan = random_options(random);
  one.costs = random_costs(random, one.world);
  one.source = static_cast<Source>(random.integer(0, 2));
  if (one.source != Source::kFile && random.coin()) one.profile_steps = random.integer(1, 3);
  one.send_gradients = random.integer(0, 4) > 0;
  one.synchronize = random.integer(0, 4) == 0;
  if (random.integer(0, 4) == 0) one.discard_before = random.integer(0, one.steps - 1);
  one.later_world = one.world;
  if (one.steps > 1 && random.integer(0, 2) == 0) {
    one.save_after = random.integer(1, one.steps - 1);
    // With kfac-pytorch's scale factors depend on the examples of a rank.
    if (one.kfac.convention != Convention::kKfacPytorch && random.coin()) {
      one.later_world = static_cast<int>(random.integer(1, 6));
    }
  }
  return one;
}

std::string text_of(const PlanCase& one) {
  const char* const sources[] = {"costs", "changed", "file"};
  std::string text =
      fmt::format("{} ranks, net {}, {} examples", one.world, text_of(one.net), one.examples);
  if (one.passes > 1) text += fmt::format(", {} passes", one.passes);
  text += fmt::format(
      ", {} steps; {} schedule={} fusion={} threshold={} placement={} balance_by={} reduce={} "
      "exchange={}",
      one.steps, one.plan.algorithm, name_of(factor_schedule_names(), one.plan.factor_schedule),
      name_of(fusion_names(), one.plan.fusion), one.plan.threshold_bytes.value(),
      name_of(placement_names(), one.plan.placement),
      name_of(balance_by_names(), one.plan.balance_by),
      name_of(factor_reduce_names(), one.plan.factor_reduce),
      name_of(exchange_names(), one.plan.exchange));
  text += text_of_optional("replicate_below", one.plan.nct_below);
  text += text_of_optional("owners", one.plan.owners);
  text += fmt::format(" plan={} profile_steps={}{}{}; {}",
                      sources[static_cast<std::size_t>(one.source)], one.profile_steps,
                      one.send_gradients ? "" : " gradients=averaged",
                      one.synchronize ? " synchronize" : "", digest(one.kfac));
  text += text_of_optional("discard_before", one.discard_before);
  text += text_of_optional("save_after", one.save_after);
  if (one.save_after) text += fmt::format(" later_ranks={}", one.later_world);
  return text;
}

std::optional<std::string> may_refuse(const PlanCase& one) {
  const bool automatic = one.plan.algorithm == kAutoAlgorithm;
  if (!automatic) {
    if (const auto conflict = conflict_in(one.plan)) return conflict;
  }
  if (const auto conflict = conflict_in(one.kfac.intervals())) return conflict;
  if (one.synchronize && one.send_gradients &&
      (automatic || one.plan.exchange != Exchange::kInverse)) {
    return "synchronize() needs averages on every rank";
  }
  return std::nullopt;
}

}  // namespace spdkfac::stress
