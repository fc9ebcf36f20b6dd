// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/kfac_flags.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/cli/flags.h"
#include "spdkfac/runtime/presets.h"

namespace spdkfac::cli {
namespace {

// Fresh factors are worth more than fresh inverses (docs/training.md).
constexpr std::int64_t kDefaultInverseInterval = 5;
constexpr std::int64_t kMaxPatchMegabytes = 1 << 20;

}  // namespace

void KfacFlags::add_to(CLI::App& verb, const std::string& group) {
  const auto option = [&](const char* flag, auto& field, const std::string& help,
                          const char* type) {
    return verb.add_option(flag, field, help)->type_name(type)->group(group);
  };
  option("--preset", preset,
         fmt::format("Values of the other flags: {} (default: paper, with inverses every 5 steps)",
                     fmt::join(preset_names(), ", ")),
         "NAME")
      ->check(one_of(preset_names()));
  option(
      "--solver", solver,
      "What is made of the factors: inverse (default), eigen, ekfac, or adam in the eigenvectors",
      "WORD")
      ->check(one_of(solver_names()));
  option("--graft", graft, "Whose length an update has: none (default), sgd, adam", "WORD")
      ->check(one_of(graft_names()));
  option("--damping", damping, "Damping of the factors (default 0.01)", "X")->check(number(0, 1e6));
  verb.add_flag("--lm-damping", lm_damping, "Let damping follow the loss (Levenberg-Marquardt)")
      ->group(group);
  option("--damping-mode", damping_mode,
         "How damping is divided between the factors: pi (default), plain or relative", "WORD")
      ->check(one_of(damping_names()));
  option("--running-average", running_average, "Weight of the old average (default 0.95)", "X")
      ->check(number(0, 1));
  verb.add_flag("--identity-start", identity_start, "Start the running average from the identity")
      ->group(group);
  option("--convention", convention, "Scale of the factors: kfc (default), paper, kfac-pytorch",
         "WORD")
      ->check(one_of(convention_names()));
  option("--kl-clip", kl_clip, "Limit of an update, 0 for none (default 0.001)", "X")
      ->check(number(0, 1e6));
  option("--interval", interval,
         "When factors and inverses are renewed: fixed (default); auto, often early and rarely "
         "later; adaptive, inverses when factors have moved",
         "WORD")
      ->check(one_of(refresh_names()));
  option("--factor-interval", factor_interval, "Steps between new factors (default 1)", "N")
      ->check(count(1, kMaxInterval));
  option("--inverse-interval", inverse_interval, "Steps between new inverses (default 5)", "N")
      ->check(count(1, kMaxInterval));
  option("--refresh-change", refresh_change,
         "Of adaptive intervals: the change of a factor that renews inverses (default 0.1)", "X")
      ->check(number(0, 1e6));
  verb.add_flag("--spread-refreshes", spread_refreshes,
                "Spread a refresh of the inverses over the steps that renew factors")
      ->group(group);
  verb.add_flag("--norms", norms, "Cover norms, too, by blocks of their channels")->group(group);
  option("--precision", precision,
         "Precision of K-FAC's products on a GPU: tf32 (default), fp32, bf16", "WORD")
      ->check(one_of(precision_names()));
  option("--max-dimension", max_dimension,
         "Rows above which a factor is not kept whole (default 8192)", "N")
      ->check(count(1, 1'000'000'000));
  option("--large-factors", large_factors,
         "What is kept of such a factor: diagonal (default) or blocks", "WORD")
      ->check(one_of(large_factors_names()));
  option("--patch-memory", patch_megabytes, "Memory for the patches of a convolution (default 256)",
         "MB")
      ->check(count(1, kMaxPatchMegabytes));
}

void KfacFlags::set_intervals(KfacOptions& options) const {
  const bool given = factor_interval || inverse_interval;
  // Whoever gives intervals means them as they are.
  if (interval || given) {
    set_interval(options, value_of<Refresh>(refresh_names(), interval.value_or("fixed")));
  }
  if (factor_interval) options.factor_interval = *factor_interval;
  if (inverse_interval) {
    options.inverse_interval = *inverse_interval;
  } else if (options.interval == Refresh::kFixed && preset.value_or("") != "paper") {
    // Inverses of unchanged factors would not change: at least as many steps, and a multiple.
    const std::int64_t every = options.factor_interval;
    options.inverse_interval = (kDefaultInverseInterval + every - 1) / every * every;
  }
  if (options.interval == Refresh::kFixed && !inverse_interval) {
    options.inverse_interval = std::max(options.inverse_interval, options.factor_interval);
  }
}

KfacOptions KfacFlags::options(bool over_adam) const {
  KfacOptions options = kfac_preset(preset.value_or("paper"));
  if (options.graft == Graft::kAdam && !over_adam) set_graft(options, Graft::kSgd);
  set_solver(options, value_of<Solver>(solver_names(), solver));
  if (options.solver == Solver::kAdam && !over_adam) {
    throw ConfigError(
        "flags: --solver adam makes steps of Adam, which --optimizer sgd would add up; choose "
        "--optimizer adamw");
  }
  if (graft) set_graft(options, value_of<Graft>(graft_names(), *graft));
  set_intervals(options);
  if (damping) options.damping = *damping;
  options.lm_damping = lm_damping;
  if (damping_mode) options.damping_mode = value_of<Damping>(damping_names(), *damping_mode);
  if (running_average) options.running_average = *running_average;
  if (kl_clip) options.kl_clip = *kl_clip;
  if (refresh_change) options.refresh_change = *refresh_change;
  options.spread_refreshes = spread_refreshes;
  options.identity_start = identity_start;
  options.convention = value_of<Convention>(convention_names(), convention);
  options.precision = value_of<Precision>(precision_names(), precision);
  options.norms = norms;
  if (max_dimension) options.max_dimension = *max_dimension;
  options.large_factors = value_of<LargeFactors>(large_factors_names(), large_factors);
  if (patch_megabytes > 0) options.patch_memory = kMebibyte * patch_megabytes;
  return options;
}

}  // namespace spdkfac::cli
