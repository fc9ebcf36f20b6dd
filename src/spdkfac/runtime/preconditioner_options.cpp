// SPDX-License-Identifier: Apache-2.0
// What a Preconditioner changes of its options while it trains.
#include <utility>

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/agreement.h"
#include "spdkfac/comm/rank_values.h"
#include "spdkfac/runtime/preconditioner_impl.h"

namespace spdkfac {

KfacOptions Preconditioner::Impl::validated(const KfacOptions& options, int world) {
  validate(options);
  if (options.sharing != Sharing::kExpand) {
    throw ConfigError(fmt::format("kfac: sharing={}; training has expand alone",
                                  sharing_names()[static_cast<std::size_t>(options.sharing)]));
  }
  if (world > 1 && options.inverse_interval % options.factor_interval != 0) {
    throw ConfigError(
        fmt::format("kfac: inverse_interval={} is not a multiple of factor_interval={}; on several "
                    "ranks, new inverses come with new factors: choose a multiple",
                    options.inverse_interval, options.factor_interval));
  }
  return options;
}

void Preconditioner::Impl::change(const KfacChanges& changes) {
  const KfacOptions changed = validated(with_changes(options, changes), ranks());
  if (called_ && changed.intervals() != options.intervals()) {
    throw ConfigError(
        "kfac: intervals cannot change between a forward pass and its step(); change them after "
        "step()");
  }
  comm::require_same(*distribution_.communicator, "the changed options", digest(changed));
  adopt(changed);
}

void Preconditioner::Impl::adopt(const KfacOptions& changed) {
  const bool intervals = changed.intervals() != options.intervals();
  options = changed;
  if (!intervals) return;
  const c10::NoGradGuard no_grad;
  refreshes_.reschedule();
  plans_.set_intervals(options);
  if (executor_.planned()) {
    plans_.make_for_intervals(layers, calls_, parameters_);
    adopt_plans();
  }
  executor_.begin(work(), timing_);
}

void Preconditioner::Impl::begin_trial(const std::vector<runtime::ClippedLayer>& layers_of_step,
                                       const runtime::Clipped& clipped,
                                       const std::vector<ParameterPart>& others) {
  if (!options.lm_damping || (steps_ + 1) % runtime::DampingTrial::kInterval != 0) return;
  trial_.emplace(layers_of_step, clipped, others);
}

void Preconditioner::Impl::require_no_trial() const {
  if (!trial_) return;
  throw ConfigError(
      "kfac: lm_damping needs the loss on the same batch after the update; in Python call "
      "step(closure), in C++ judge_damping()");
}

void Preconditioner::Impl::judge_damping(double before, double after) {
  if (!trial_) {
    throw ConfigError(
        "kfac: there is no step to judge; call judge_damping() only when judges_damping() is true");
  }
  const c10::NoGradGuard no_grad;
  const double predicted = std::exchange(trial_, std::nullopt)->predicted();
  double change = 0;
  double model = 0;
  for (const std::vector<double>& of_rank :
       comm::numbers_of_ranks(*distribution_.communicator, device(), {after - before, predicted})) {
    change += of_rank[0];
    model += of_rank[1];
  }
  options.damping = runtime::damping_after(options.damping, change, model);
}

}  // namespace spdkfac
