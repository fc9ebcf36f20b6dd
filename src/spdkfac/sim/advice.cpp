// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/advice.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/plan/refresh_schedule.h"
#include "spdkfac/sim/auto_planner.h"

namespace spdkfac::sim {
namespace {

constexpr double kTwice = 0.5;
constexpr double kTenfold = 0.1;
constexpr std::int64_t kRarer = 10;

constexpr const char* kInverses = "inverses";

// A part of the costs: the fields of the scale that belong to it.
struct Part {
  const char* id;
  const char* name;
  std::vector<double CostScale::*> fields;
};

const std::vector<Part>& parts() {
  static const std::vector<Part> kParts = {
      {"forward_backward", "forward and backward", {&CostScale::forward_backward}},
      {"factor_computation", "factor computation", {&CostScale::factors}},
      {kInverses, "all inverses", {&CostScale::inverses}},
      {"precondition", "preconditioning", {&CostScale::precondition}},
      {"bytes", "bytes on the wire", {&CostScale::bytes}},
      {"startups", "start-up times", {&CostScale::startups}},
      {"handling", "host work and packing", {&CostScale::host, &CostScale::packing}},
      {"contention", "slow-down next to messages", {&CostScale::contention}}};
  return kParts;
}

CostScale with(CostScale scale, const Part& part, double value) {
  for (const auto field : part.fields) scale.*field = value;
  return scale;
}

// A change before it is simulated. `batch` stands apart from the model's, whose measured totals
// are for one batch only.
struct Idea {
  std::string id;
  std::string what;
  Needs needs = Needs::kOption;
  std::string training;
  Scenario scenario;
  std::int64_t batch = 1;
  bool same_plan_fits = false;
};

std::vector<Idea> hardware(const Scenario& base) {
  std::vector<Idea> ideas;
  const auto add = [&](const char* id, const char* what, const CostScale& scale) {
    ideas.push_back({id, what, Needs::kHardware, "", scaled(base, scale), base.model.batch, true});
  };
  if (base.world > 1) {
    add("bandwidth_x2", "network bandwidth ×2", {.bytes = kTwice});
    add("startup_x2", "network start-up ÷2", {.startups = kTwice});
    add("network_x10", "network bandwidth ×10, start-up ÷10",
        {.bytes = kTenfold, .startups = kTenfold});
  }
  add("factors_x2", "factor computation twice as fast", {.factors = kTwice});
  add("inverses_x2", "inversions twice as fast", {.inverses = kTwice});
  add("compute_x2", "all computation twice as fast",
      {.forward_backward = kTwice,
       .factors = kTwice,
       .inverses = kTwice,
       .precondition = kTwice,
       .packing = kTwice});
  return ideas;
}

std::string every(std::int64_t steps) { return fmt::format("every {} steps", steps); }

std::vector<Idea> intervals(const Scenario& base) {
  const std::int64_t factor = base.intervals.factors;
  const std::int64_t inverse = base.intervals.inverses;
  std::vector<Idea> ideas;
  const auto add = [&](const char* id, std::string what, std::string training,
                       std::int64_t new_factor, std::int64_t new_inverse) {
    Scenario changed = base;
    changed.intervals.factors = new_factor;
    changed.intervals.inverses = new_inverse;
    ideas.push_back({id, std::move(what), Needs::kOption, std::move(training), std::move(changed),
                     base.model.batch, false});
  };
  if (inverse % (factor * kRarer) == 0) {
    add("factor_interval_x10", "factors " + every(factor * kRarer), "older factors",
        factor * kRarer, inverse);
  }
  add("inverse_interval_x10", "inverses " + every(inverse * kRarer), "older inverses", factor,
      inverse * kRarer);
  add("intervals_x10",
      factor == inverse
          ? "factors and inverses " + every(inverse * kRarer)
          : fmt::format("factors/inverses every {}/{} steps", factor * kRarer, inverse * kRarer),
      "older factors and inverses", factor * kRarer, inverse * kRarer);
  return ideas;
}

std::vector<Idea> sizes(const Scenario& base) {
  std::vector<Idea> ideas;
  const auto add = [&](const char* id, std::string what, Needs needs, const Scenario& changed,
                       std::int64_t batch) {
    ideas.push_back({id, std::move(what), needs,
                     fmt::format("global batch {}", changed.world * batch), changed, batch, false});
  };
  const auto with_world = [&](int world) {
    Scenario changed = base;
    changed.world = world;
    return changed;
  };
  const auto ranks = [](int world) {
    return fmt::format("{} rank{}", world, world == 1 ? "" : "s");
  };
  const std::int64_t batch = base.model.batch;
  add("batch_x2", fmt::format("batch {} per rank", 2 * batch), Needs::kOption,
      scaled(base, {.forward_backward = 2, .factors = 2}), 2 * batch);
  if (base.world > 1) {
    add("workers_half", ranks(base.world / 2), Needs::kOption, with_world(base.world / 2), batch);
  }
  // Costs of one rank say nothing about a network.
  if (base.costs.world > 1 && 2 * base.world <= kMaxWorld) {
    add("workers_x2", ranks(2 * base.world), Needs::kHardware, with_world(2 * base.world), batch);
  }
  return ideas;
}

std::vector<Idea> all_ideas(const Scenario& base) {
  std::vector<Idea> ideas;
  if (base.options.algorithm != kAutoAlgorithm) {
    Scenario changed = base;
    changed.options = preset(kAutoAlgorithm);
    ideas.push_back({"auto", "algorithm auto", Needs::kOption, "", changed, base.model.batch});
  }
  for (auto&& more : {hardware(base), intervals(base), sizes(base)}) {
    ideas.insert(ideas.end(), more.begin(), more.end());
  }
  return ideas;
}

double ratio(double a, double b) { return a == b ? 1 : a / b; }

double examples_per_second(int world, std::int64_t batch, Seconds iteration) {
  return static_cast<double>(world) * static_cast<double>(batch) / iteration.value();
}

class Adviser {
 public:
  Adviser(const Scenario& base, const AdviceProgress& progress)
      : base_(base), progress_(progress), ideas_(all_ideas(base)) {}

  Advice run() {
    const auto [options, iteration] = replanned(base_);
    advice_.options = options;
    advice_.iteration = iteration;
    advice_.examples_per_second =
        examples_per_second(base_.world, base_.model.batch, advice_.iteration);
    advice_.largest_inverse = largest_inverse(base_.model, base_.costs);
    advice_.all_inverses = all_inverses(base_.model, base_.costs);
    plans_ = cycle_plans(base_.model, base_.costs, base_.world, options, base_.intervals);
    find_limits();
    for (const Idea& idea : ideas_) try_out(idea);
    std::stable_sort(advice_.changes.begin(), advice_.changes.end(),
                     [](const Change& a, const Change& b) { return a.speedup > b.speedup; });
    return std::move(advice_);
  }

 private:
  struct Outcome {
    PlanOptions options;
    Seconds iteration;
  };

  static Outcome replanned(const Scenario& s) {
    const PlanOptions options =
        s.options.algorithm == kAutoAlgorithm
            ? best_options(s.model, s.costs, s.world, s.intervals, s.options.solver)
            : s.options;
    return {options, average_iteration(s.model, s.costs, s.world, options, s.intervals)};
  }

  // A new plan is not always better: rules such as greedy fusion can lose when parts get faster.
  Outcome best_of(const Scenario& s, bool same_plan_fits) {
    Outcome outcome = replanned(s);
    if (same_plan_fits) {
      const Seconds as_it_was = average_iteration(s.model, s.costs, plans_);
      if (as_it_was < outcome.iteration) outcome = {advice_.options, as_it_was};
    }
    if (progress_) progress_(++done_, 2 * parts().size() + 1 + ideas_.size());
    return outcome;
  }

  Seconds iteration_with(const Scenario& s) { return best_of(s, true).iteration; }

  void find_limits() {
    for (const Part& part : parts()) {
      advice_.limits.push_back({part.id, part.name,
                                iteration_with(scaled(base_, with(kEverythingFree, part, 1))),
                                iteration_with(scaled(base_, with({}, part, 0)))});
    }
    const Seconds share = advice_.all_inverses / base_.world;
    advice_.limits.push_back(
        {kLargestInverse, "the largest inverse",
         advice_.largest_inverse / plan::refresh_counts(base_.intervals).steps_per_inverse(),
         iteration_with(with_inverses_at_most(base_, share))});
    std::stable_sort(advice_.limits.begin(), advice_.limits.end(),
                     [](const Limit& a, const Limit& b) { return a.without < b.without; });
    advice_.limiting = limiting();
  }

  // Inverses limit by their sum or by the largest, which cannot be divided: that one is named when
  // it explains at least half.
  std::string limiting() const {
    const Limit& most = advice_.limits.front();
    if (most.without >= advice_.iteration) return "";
    const auto largest =
        std::find_if(advice_.limits.begin(), advice_.limits.end(),
                     [](const Limit& limit) { return limit.id == kLargestInverse; });
    const Seconds saved = advice_.iteration - most.without;
    const bool explains = 2 * (advice_.iteration - largest->without) >= saved;
    return most.id == kInverses && explains ? kLargestInverse : most.id;
  }

  void try_out(const Idea& idea) {
    const auto [options, iteration] = best_of(idea.scenario, idea.same_plan_fits);
    const int world = idea.scenario.world;
    const double rate = examples_per_second(world, idea.batch, iteration);
    advice_.changes.push_back({idea.id, idea.what, idea.needs, idea.training, world, idea.batch,
                               options, idea.scenario.intervals, iteration, rate,
                               ratio(rate, advice_.examples_per_second)});
  }

  const Scenario& base_;
  const AdviceProgress& progress_;
  std::vector<Idea> ideas_;
  std::vector<Plan> plans_;  // of the base, a cycle
  std::size_t done_ = 0;
  Advice advice_;
};

}  // namespace

Advice advise(const Scenario& scenario, const AdviceProgress& progress) {
  SPDKFAC_CHECK(scenario.options.second_order(), "advice is about K-FAC");
  return Adviser(scenario, progress).run();
}

}  // namespace spdkfac::sim
