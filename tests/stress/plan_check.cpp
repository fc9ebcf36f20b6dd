// SPDX-License-Identifier: Apache-2.0
#include "stress/plan_check.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/plan/plan_file.h"
#include "stress/plan_run.h"

namespace spdkfac::stress {
namespace {

// Sums in another order differ by some 1e-16. Damping of at least 0.03 keeps inverses below 1e5
// times their factors, and a few steps of most small networks multiply errors by less than a
// hundred. Others amplify more: they may differ by what a change of the first parameters makes of
// the plain run, by a few roundings for each of its several steps and layers.
constexpr double kTolerance = 1e-9;
constexpr double kSomeRoundings = 1e-14;
constexpr std::uint64_t kOrders = 4;
constexpr double kBeyondFewOrders = 10;

void wait_at_random(int rank, std::int64_t step, Moment moment) {
  thread_local std::minstd_rand random(std::random_device{}());
  (void)rank;
  (void)step;
  (void)moment;
  if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
}

// What one rank gets, or, where factors depend on the examples of a rank, the plainest algorithm.
at::Tensor expected_parameters(const PlanCase& one) {
  if (one.kfac.convention != Convention::kKfacPytorch) return train_on_joined_batches(one);
  PlanCase plain = one;
  plain.plan = preset(one.plan.second_order() ? "d-kfac" : "sgd");
  plain.source = Source::kCosts;
  plain.profile_steps = 0;
  plain.synchronize = false;
  plain.discard_before.reset();
  plain.save_after.reset();
  return train_on_threads(plain, wait_at_random).ranks.front();
}

double relative_difference(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).abs().max() / expected.abs().max()).item<double>();
}

double amplified_rounding(const PlanCase& one, const at::Tensor& expected) {
  PlanCase moved = one;
  moved.first = 1 + kSomeRoundings;
  double largest = relative_difference(expected_parameters(moved), expected);
  if (!keeps_moments(one.kfac.solver) || one.kfac.factor_rows != 0) return largest;
  // Second moments depend on each eigenvector, and where eigenvalues are nearly equal, the order in
  // which a factor is added up decides how these are turned. A few orders do not show the largest
  // difference that there is.
  for (std::uint64_t order = 1; order <= kOrders; ++order) {
    PlanCase shuffled = one;
    shuffled.order = order;
    const at::Tensor found = expected_parameters(shuffled);
    largest = std::max(largest, kBeyondFewOrders * relative_difference(found, expected));
  }
  return largest;
}

std::optional<Plan> written_and_read(const std::optional<Plan>& plan) {
  if (!plan) return std::nullopt;
  return parse_plan(parse_json(to_json(*plan).dump(), "plan"), "plan");
}

std::optional<std::string> compare(const PlanCase& one, PlanTotals* totals) {
  const Trained first = train_on_threads(one, wait_at_random);
  for (const at::Tensor& of_rank : first.ranks) {
    if (!at::equal(of_rank, first.ranks.front())) return "ranks have different parameters";
  }
  const auto followed = one.source == Source::kFile ? written_and_read(first.plan) : std::nullopt;
  const Trained second = train_on_threads(one, wait_at_random, followed);
  if (!at::equal(first.ranks.front(), second.ranks.front())) {
    return fmt::format("two runs differ by {:.1e}",
                       (first.ranks.front() - second.ranks.front()).abs().max().item<double>());
  }
  const at::Tensor expected = expected_parameters(one);
  const double difference = relative_difference(first.ranks.front(), expected);
  if (!(difference <= kTolerance)) {
    const double amplified = amplified_rounding(one, expected);
    if (!(difference <= amplified)) {
      return fmt::format(
          "differs from one rank on the joined batch by {:.1e}; some roundings make {:.1e}",
          difference, amplified);
    }
    if (totals) ++totals->sensitive;
    return std::nullopt;
  }
  if (totals) {
    ++totals->equal;
    if (difference > totals->largest) {
      totals->largest = difference;
      totals->largest_seed = one.seed;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string text_of(const PlanTotals& totals) {
  const std::string sensitive =
      totals.sensitive == 0
          ? ""
          : fmt::format("{} as far apart as roundings bring them, ", totals.sensitive);
  return fmt::format("{} equal (largest difference {:.1e}, seed {}), {}{} refused", totals.equal,
                     totals.largest, totals.largest_seed, sensitive, totals.refused);
}

std::optional<std::string> check_plan(const PlanCase& one, PlanTotals* totals) {
  const auto reason = may_refuse(one);
  try {
    return compare(one, totals);
  } catch (const ConfigError& error) {
    if (!reason) return fmt::format("refused without a reason ({})", error.what());
    if (totals) ++totals->refused;
    return std::nullopt;
  } catch (const std::exception& error) {
    return fmt::format("failed ({})", error.what());
  }
}

}  // namespace spdkfac::stress
