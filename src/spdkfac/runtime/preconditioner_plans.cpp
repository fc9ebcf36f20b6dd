// SPDX-License-Identifier: Apache-2.0
// The plans that a Preconditioner follows, and the memory that they take.
#include <algorithm>
#include <map>

#include "spdkfac/base/error.h"
#include "spdkfac/runtime/memory_forecast.h"
#include "spdkfac/runtime/preconditioner_impl.h"
#include "spdkfac/runtime/residence.h"

namespace spdkfac {

// The order of layers and their work are known after the first forward pass.
void Preconditioner::Impl::make_first_plan() {
  executor_.settle();
  const std::int64_t batch = bank_.passes().batch();
  calls_ = plans_.make_first(layers, batch > 0 ? calls_.in_batch(batch) : calls_, parameters_);
  adopt_plans();
}

void Preconditioner::Impl::make_plan_again() {
  timing_ = false;
  plans_.make_again(runtime::joined_times(profiles()));
  timed_.clear();
  adopt_plans();
}

void Preconditioner::Impl::adopt_plans() {
  const std::map<StepKind, Plan> followed = plans_.followed();
  if (second_order_ && ranks() > 1) require_memory(followed);
  executor_.adopt(followed, plans_.model(), calls_.order());
}

void Preconditioner::Impl::time_layers(bool on) {
  if (plans_.model().layers.empty()) {
    throw ConfigError(
        "kfac: layers can be timed only on several ranks and with a plan; call time_layers() after "
        "the first step");
  }
  timing_ = on;
  executor_.begin(work(), timing_);
  if (!timing_ && !options.trace) recorder_.stop();
  if (timing_ && !recorder_.on()) recorder_.start(device());
}

std::vector<runtime::RankProfile> Preconditioner::Impl::profiles() {
  if (timed_.empty()) {
    throw ConfigError("kfac: no layers were timed; call time_layers() before a step");
  }
  return runtime::profiles_of_ranks(
      runtime::profile_of(timed_, plans_.model().layers, calls_.order()),
      *distribution_.communicator, device());
}

// --- memory ---

// Who keeps averages and inverses is known on one rank alone; sums are kept by all.
void Preconditioner::Impl::require_memory_at_start() {
  const runtime::KeptParts kept{.average = ranks() == 1, .inverse = ranks() == 1};
  runtime::require_memory(
      *distribution_.communicator, layers, options, [kept](runtime::FactorId) { return kept; },
      Bytes(0), Bytes(0));
}

void Preconditioner::Impl::require_memory(const std::map<StepKind, Plan>& plans) {
  const runtime::LayerOrder order(calls_.order(), layers.size());
  const runtime::Residences residences = runtime::residences_of(plans.at(StepKind::kFull), order);
  const int rank = distribution_.communicator->rank();
  const auto parts = [&](runtime::FactorId id) -> runtime::KeptParts {
    const auto found = residences.find(id);
    if (found == residences.end()) return {};
    return {.average = found->second.average.value_or(rank) == rank,
            .inverse = found->second.inverse.value_or(rank) == rank};
  };
  std::int64_t elements = 0;
  for (const auto& [kind, plan] : plans) {
    elements = std::max(elements, runtime::elements_sent(plan, plans_.model()));
  }
  const auto size =
      static_cast<std::int64_t>(runtime::factor_options(layers.front().weight).dtype().itemsize());
  const KfacMemory held = memory();
  runtime::require_memory(*distribution_.communicator, layers, options, parts,
                          Bytes(elements * size), held.factors + held.inverses + held.buffers);
}

}  // namespace spdkfac
